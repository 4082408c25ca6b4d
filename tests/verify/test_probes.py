"""Which fixes ran: small programs, each with what runs and what does not at the end of a line."""

from __future__ import annotations

import ast
import builtins
import textwrap
import traceback
from typing import Any

import pytest

from devicefix.config.settings import Settings
from devicefix.runner.run import check_text
from devicefix.verify.commands import Ended
from devicefix.verify.program import Program, Rewritten
from devicefix.verify.runtime import lines, probes
from devicefix.verify.verdict import Run, judge

torch = pytest.importorskip("torch")

PROGRAMS = {
    "statements": """
        import torch
        x = torch.ones(1).cuda()  # ran
        if x.numel() == 2:
            y = x.cuda()  # missed
        else:
            y = x + torch.ones(1).cuda()  # ran
        for _ in []:
            y.cuda()  # missed
        while x.cuda().numel() == 2:  # ran
            x = x.cuda()  # missed
    """,
    "one line": """
        import torch
        x = torch.ones(1)
        if x.numel() == 2: x = x.cuda()  # missed
        if x.numel() == 1: x = x.cuda()  # ran
        if x.cuda().numel() == 2: print(x)  # ran
        if x.cuda().numel() == 2: x.cuda()  # missed
        a = x.cuda(); b = x.cuda()  # ran
        def f(x): return x.cuda()  # missed
    """,
    "an error before": """
        import torch
        try:
            x = torch.ones(1).cuda()  # ran
            raise KeyError
            x = x.cuda()  # missed
        except KeyError:
            y = x.cuda()  # ran
        except ValueError:
            y = x.cuda()  # missed
        else:
            y = x.cuda()  # missed
        finally:
            y = x.cuda()  # ran
    """,
    "functions": """
        import torch
        def f(x, device=torch.ones(1).cuda().device):  # ran
            '''Its documentation.'''
            return x.cuda()  # ran
        def g(
            x,
            like=torch.ones(1).cuda(),  # ran
        ): return x.cuda()  # missed
        f(torch.ones(1))
        assert f.__doc__ == 'Its documentation.'
    """,
    "classes": """
        import torch
        class A:
            '''Its documentation.'''
            x = torch.ones(1).cuda()  # ran
            def f(self):
                return self.x.cuda()  # missed
        assert A.__doc__ == 'Its documentation.' and '__devicefix_ran__' not in vars(A)
    """,
    "decorators": """
        import torch
        def twice(x):
            return lambda f: f
        @twice(torch.ones(1).cuda())  # ran
        def f(x):
            return x.cuda()  # missed
        @twice(
            torch.ones(1).cuda()  # ran
        )
        class A:
            x = torch.ones(1).cuda()  # ran
    """,
    "lambdas": """
        import torch
        f = lambda x: x.cuda()  # missed
        g = lambda x: x.cuda()  # ran
        g(torch.ones(1))
        h = lambda x=torch.ones(1).cuda(): x  # ran
        k = lambda x: (lambda y: y.cuda())  # missed
        k(1)
        torch.ones(1).cuda().apply_(lambda v: torch.ones(1).cuda().item()) if False else 1  # missed
    """,
    "a lambda behind a change": """
        import torch
        x = torch.ones(1)
        x.cuda().register_hook(lambda g: g.cuda()) if x.requires_grad else x.cuda()  # missed
        x = [x.cuda(), lambda g: g.cuda()][0]  # missed
    """,
    "comprehensions": """
        import torch
        xs, none = [torch.ones(1)], []
        a = [x.cuda() for x in xs]  # ran
        b = [x.cuda() for x in none]  # missed
        c = {k: x.cuda() for k, x in enumerate(none)}  # missed
        d = (x.cuda() for x in xs)  # missed
        e = list(x.cuda() for x in xs)  # ran
        f = [x for x in xs if x.cuda().numel() == 1]  # ran
        g = [x for x in none if x.cuda().numel() == 1]  # missed
        h = [y for x in none for y in x.cuda()]  # missed
        i = [x for x in torch.ones(1).cuda()]  # ran
        j = [
            x.cuda()  # missed
            for x in none
        ]
        k = [(y := x.cuda()) for x in xs]  # ran
        assert y is k[0] or y is not None
    """,
    "branches": """
        import torch
        x, yes, no = torch.ones(1), True, False
        a = x.cuda() if yes else None  # ran
        b = x.cuda() if no else None  # missed
        c = x.cuda() if no else x.cuda()  # missed
        d = no and x.cuda()  # missed
        e = yes and x.cuda()  # ran
        f = x.cuda().numel() == 2 and x.cuda()  # missed
        g = x.cuda().numel() == 1 and x.cuda()  # ran
        assert x.cuda().numel() == 1, x.cuda()  # missed
        h = x if x.cuda().numel() == 1 else x.cuda()  # missed
        i = x if x.cuda().numel() == 2 else x.cuda()  # ran
        j = 1 > 2 > x.cuda().numel()  # missed
        k = 1 < 2 > x.cuda().numel()  # ran
    """,
    "several lines": """
        import torch
        x = (torch.ones(1)  # ran
             .float()
             .cuda())
        y = torch.stack([
            x.cuda(),  # ran
            x.cuda() if x.numel() == 2 else x,  # missed
        ])
        def f():
            return torch.cat([
                x.cuda(),  # missed
            ])
    """,
    "a handler": """
        import torch
        try:
            raise KeyError
        except [KeyError, torch.ones(1).cuda()][0]:  # ran
            pass
        try:
            pass
        except [KeyError, torch.ones(1).cuda()][0]:  # missed
            pass
    """,
    "match": """
        import torch
        x = torch.ones(1)
        match 3:
            case 2:
                x = x.cuda()  # missed
            case 3 if x.cuda().numel() == 1:  # ran
                x = x.cuda()  # ran
            case 4 if x.cuda().numel() == 1:  # missed
                pass
    """,
    "a guard that a fix makes": """
        import torch
        torch.cuda.synchronize()  # ran
        def f(x):
            torch.cuda.synchronize()  # missed
            torch.cuda.synchronize()  # missed
            return x
        def g():
            torch.cuda.set_device(0)  # ran
            torch.cuda.synchronize()  # ran
        g()
        if torch.ones(1).numel() == 2:
            torch.cuda.synchronize()  # missed
    """,
    "a guard that a fix removes": """
        import torch
        def f(x):
            if torch.cuda.is_available():  # ran
                x = x.cuda()
            return x
        def g(x):
            if torch.cuda.is_available():  # missed
                x = x.cuda()
            return x
        f(torch.ones(1))
    """,
    "what a fix removes": """
        '''Its documentation.'''
        from __future__ import annotations
        import torch
        assert torch.cuda.is_available()  # ran
        assert __doc__ == 'Its documentation.'
    """,
    "a removed first statement": """
        import torch
        def f(x):
            assert torch.cuda.is_available()  # ran
            for _ in x:
                assert torch.cuda.is_available()  # missed
                print(x)
            for _ in x:
                print(x)
            else:
                # a comment
                assert torch.cuda.is_available()  # ran
                print(x)
            for _ in x:
                # a comment

                assert torch.cuda.is_available()  # missed
                # another
                print(x)
            for _ in x: assert torch.cuda.is_available(); print(x)  # missed
            return x
        f([])
    """,
    "a removed statement before a statement of another block": """
        import torch
        def f(x):
            for _ in x:
                print(x)
                assert torch.cuda.is_available()  # missed
        f([])
    """,
    "a removed last statement": """
        import torch
        def f(x):
            for _ in x:
                print(x)
                assert torch.cuda.is_available()  # missed
            for _ in x:
                print(x)
                # a comment
                assert torch.cuda.is_available()  # missed
            else:
                print(x)
                assert torch.cuda.is_available()  # ran
            for _ in x:
                for _ in [1]:
                    print(x)
                assert torch.cuda.is_available()  # missed
            for _ in x: print(x); assert torch.cuda.is_available()  # missed
            for _ in [1]:
                for _ in x:
                    print(x)
                assert torch.cuda.is_available()  # ran
        f([])
    """,
    "generators and coroutines": """
        import asyncio
        import torch
        def f(x):
            yield x.cuda()  # missed
        f(1)
        async def g(x):
            y = [x.cuda() async for _ in h()]  # ran
            return x.cuda()  # ran
        async def h():
            yield 1
        asyncio.run(g(torch.ones(1)))
    """,
    "nested": """
        import torch
        def f(x):
            def g(y):
                return y.cuda()  # missed
            class A:
                def h(self, y):
                    return y.cuda()  # ran
            with torch.no_grad(), torch.no_grad():
                A().h(x)
            return x.cuda()  # ran
        f(torch.ones(1))
    """,
    "not ASCII": """
        import torch
        ä, 名 = torch.ones(1), "名"; f = lambda x: x.cuda()  # missed
        b = "名" and ä.cuda() if ä.numel() == 1 else ä.cuda()  # missed
        c = ("名名名名", ä.cuda())  # ran
    """,
    "methods of the class above": """
        import torch
        class A:
            def f(self, x, y=0):
                return x
        class B(A):
            def f(self, x, y=0):
                g = lambda: super(B, self).f(x.cuda())  # ran
                return super().f(x.cuda() if y else g()) if x.numel() == 1 else super().f(x.cuda())  # missed
            def h(self, x):
                return True and super().f(x.cuda())  # ran
        B().f(torch.ones(1))
        B().h(torch.ones(1))
    """,
    "a default device": """
        import torch
        def f(x):
            x = x.cuda()  # ran
            y = torch.zeros(2).cuda()  # ran
            return x, y
        def main():
            device = 'cuda'  # ran
            return f(torch.ones(1)), torch.ones(1, device=device)
        main()
    """,
}


def marked(code: str, word: str) -> set[int]:
    """Return the lines with a comment of one word."""
    return {number for number, line in enumerate(code.split("\n"), 1) if line.endswith(f"# {word}")}


def run(code: str) -> tuple[dict[str, Any], Run]:
    """Run a rewritten program, and return its names, and the verdict with the lines that ran."""
    outcome = check_text(code.encode(), "program.py", Settings(fix=True))
    module = Rewritten.of(outcome)
    assert module is not None
    program = Program((), {"program.py": module})
    events: list[dict[str, Any]] = [{"kind": "process"}, {"kind": "module", "file": "program.py"}]
    new = module.content.decode()
    tree = ast.parse(new)
    places = [place for fix in module.fixes for place in fix.places]
    probes.insert(tree, places, new.split("\n"), "program.py")
    lines.restore(tree, module.origins, code.split("\n"), new.split("\n"))
    names: dict[str, Any] = {"__name__": "program"}
    probes.install(lambda path, places: events.append({"kind": "fix", "file": path, "places": places}))
    try:
        exec(compile(tree, "program.py", "exec", dont_inherit=True), names)
        if "failing" in names:
            names["found"] = failed(names)
    finally:
        delattr(builtins, probes.NAME)
    return names, judge(Ended(0, 0.0), events, program)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_ran(name: str) -> None:
    code = textwrap.dedent(PROGRAMS[name]).lstrip("\n")
    _, result = run(code)
    assert {place.line for place in result.ran} == marked(code, "ran")
    assert {place.line for place in result.not_run} == marked(code, "missed")


def test_what_is_gone_ran_if_the_statement_before_it_goes_on() -> None:
    code = "for x in y:\n    if x:\n        continue\nz = 1\n"
    tree = ast.parse(code)
    probes.insert(tree, [(4, 0, 4, 0, 4)], code.split("\n"), "x.py")
    assert ast.unparse(tree) == (
        "for x in y:\n    if x:\n        continue\n    __devicefix_ran__('0:x.py')\nz = 1"
    )


FAILING = """
    import torch
    def a(x):
        x = x.cuda()
        1 / 0  # here
    def b(x):
        x = (x
             .float()
             .cuda())
        return [x.cuda(),
                1 / 0]  # here
    def c(x):
        if torch.cuda.is_available():
            x = x.cuda()
        1 / 0  # here
    def d(x):
        torch.cuda.synchronize()
        torch.cuda.synchronize()
        if x.cuda().numel() == 1: 1 / 0  # here
    def e(x):
        f = lambda y: y.cuda() if 1 / 0 else y  # here
        return f(x)
    def f(x):
        for _ in x:
            assert torch.cuda.is_available()
            1 / 0  # here
    def g(x, y=torch.ones(1).cuda()):
        device = 'cuda'
        with torch.no_grad():
            return [
                torch.ones(1, device=device),
                [1 / 0 for _ in x.cuda()],  # here
            ]
    def h(x):
        for _ in x:
            print(x)
            assert torch.cuda.is_available()
        try:
            1 / 0
        except [KeyError, x.cuda()][0]:
            pass
        except ZeroDivisionError:
            y = x.cuda(); 1 / 0  # here
    def i(x):
        '''
        A text of

        several lines.
        '''
        x.cuda(); y = x.cuda()
        return not (x.cuda().numel() == 2) and (x.cuda().numel() ==
            1 / 0)  # here
    def j(x):
        torch.cuda.set_device(0)
        return x.cuda().int() if x.numel() == 2 else \\
            x.cuda().float() + 1 / 0  # here
    failing = [a, b, c, d, e, f, g, h, i, j]
"""


def failed(names: dict[str, Any]) -> list[int | None]:
    """Call functions that fail, and return the innermost line of each traceback."""
    found = []
    for function in names["failing"]:
        with pytest.raises(ZeroDivisionError) as caught:
            function(torch.ones(1))
        found.append(traceback.extract_tb(caught.tb)[-1].lineno)
    return found


def test_tracebacks_have_the_lines_of_the_users_file() -> None:
    code = textwrap.dedent(FAILING).lstrip("\n")
    names, _ = run(code)
    assert names["found"] == sorted(marked(code, "here"))
