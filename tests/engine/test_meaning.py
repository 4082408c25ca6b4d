"""`benchmarks/meaning.py`: rewrites keep the meaning of random programs, and it notices those that do not."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from textwrap import dedent
from typing import Any

import meaning
import meaning_forms
import meaning_programs
import pytest
from meaning import Judge
from meaning_programs import Program

from devicefix.model import Finding, Result

pytestmark = pytest.mark.needs("numpy", "torch")


def judged(judge: Judge, before: str, after: str, *lines: int) -> meaning.Verdict:
    """Return the verdict on a program and its rewrite, which has findings at some lines."""
    before, after = dedent(before).lstrip("\n"), dedent(after).lstrip("\n")
    left = [Finding("DF101", "", line, 1, line, 2) for line in lines]

    def rewrite(files: meaning.Files) -> dict[str, Result]:
        return {"main": Result("main.py", left, [], None if files["main"] == after else after.encode())}

    return with_rewriter(judge, rewrite)(Program({"main": before}))


def with_rewriter(judge: Judge, rewriter: meaning.Rewriter) -> Callable[[Program], meaning.Verdict]:
    """Return the judge with another rewriter."""

    def call(program: Program) -> meaning.Verdict:
        before, judge.rewriter = judge.rewriter, rewriter
        try:
            return judge(program)
        finally:
            judge.rewriter = before

    return call


MOVE = """
import torch
x = torch.ones(2)
y = x.cuda()
print(y)
"""
RIGHT = """
import torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.ones(2)
y = x.to(device)
print(y)
"""
VIEW = """
import torch
x = torch.ones(2)
y = x.{}
y += 1
print(x)
"""
BOUND = """
import torch
a = torch.ones(2)
where = "cuda"
print(torch.ones(2).to(where))
"""
IF_CUDA = "to('cuda' if torch.cuda.is_available() else 'cpu')"
CAUGHT = """
import torch
try:
    {}
    print("gpu")
except AssertionError:
    print("cpu")
"""
RAISED = """
import torch
try:
    assert torch.cuda.is_available()
except AssertionError:
    raise KeyError
try: print(1)
except AssertionError: pass
"""
VARYING = "import os\nprint(os.urandom(8).hex())\n"

# A program, a rewrite, the lines of the findings that are left, and the category.
WRONG: dict[str, tuple[Any, ...]] = {
    "right": (MOVE, RIGHT, meaning.FINE),
    "other device on CUDA": (MOVE, MOVE.replace(".cuda()", ""), meaning.ON_CUDA),
    "other GPU": (MOVE, RIGHT + "torch.cuda.set_device(1)\n", meaning.ON_CUDA),
    "other number": (MOVE, RIGHT.replace("to(device)", "to(device) + 1"), meaning.ON_CUDA),
    "other dtype": (MOVE, RIGHT.replace("to(device)", "to(device, torch.float64)"), meaning.ON_CUDA),
    "error on CUDA": (MOVE, RIGHT.replace("x.to", "[x].to"), meaning.ON_CUDA),
    "no print": (MOVE, RIGHT.replace("print(y)", "pass"), meaning.ON_CUDA),
    "drawn on another device": (
        MOVE.replace("ones(2)", "rand(2)"),
        MOVE.replace("ones(2)", "rand(2, device='cuda')"),
        meaning.ON_CUDA,
    ),
    "unbound name": (MOVE, RIGHT.replace("device = ", "other = "), meaning.UNBOUND),
    "unbound on the CPU": (
        MOVE,
        MOVE.replace("y = ", "if torch.cuda.is_available(): y = "),
        meaning.UNBOUND,
    ),
    "CUDA is still chosen": (
        "import torch\nprint(torch.device('cuda'))\n",
        "import torch\nprint(torch.device('cuda'))\n",
        meaning.NUMBERS,
    ),
    "not fixed, not reported": (MOVE, MOVE, meaning.FAILURE),
    "reported": (MOVE, MOVE, 3, meaning.REPORTED),
    "reported elsewhere": (MOVE, MOVE, 1, meaning.ELSEWHERE),
    "reported where the value is bound": (BOUND, BOUND, 3, meaning.REPORTED),
    "reported where another value is bound": (BOUND, BOUND, 2, meaning.ELSEWHERE),
    "view": (VIEW.format("cuda()"), VIEW.format(IF_CUDA), meaning.NUMBERS),
    "reported view": (VIEW.format("cuda()"), VIEW.format(IF_CUDA), 3, meaning.REPORTED),
    "the CPU's path is gone": (
        CAUGHT.format("assert torch.cuda.is_available()"),
        CAUGHT.format("pass"),
        2,
        meaning.BROKEN,
    ),
    "worked on the CPU before": (
        CAUGHT.format("assert torch.cuda.is_available()"),
        CAUGHT.format("if not torch.cuda.is_available(): raise KeyError"),
        3,
        meaning.BROKEN,
    ),
    "reported in the block whose handler raises": (RAISED, RAISED, 3, meaning.REPORTED),
    "reported in another handler": (RAISED, RAISED, 6, meaning.ELSEWHERE),
    "different in each run": (VARYING, VARYING, meaning.INVALID),
    "no Python": (MOVE, MOVE + "(", meaning.UNPARSABLE),
    "invalid": (MOVE + "y.no_such", MOVE, meaning.INVALID),
}


@pytest.mark.parametrize(("before", "after", "rest"), [(a, b, c) for a, b, *c in WRONG.values()], ids=WRONG)
def test_categories(judge: Judge, before: str, after: str, rest: list[Any]) -> None:
    *lines, category = rest
    found = judged(judge, before, after, *lines)
    assert found.category == category, meaning.shown(found)
    assert found.group.startswith(category)


def test_groups_ignore_names_and_values(judge: Judge) -> None:
    programs = (
        "import torch\nx = 1\nprint([torch.ones(x).to(f'{y}:0') for y in ['cuda']])\n",
        "import torch\nq7 = 2\nprint([torch.ones(q7).to(f'{z}:1') for z in ['cuda']])\n",
    )
    one, other = (judged(judge, program, program).group for program in programs)
    assert one == other and "torch.ones(_).to(f'{_}')" in one


def test_a_rewriter_that_fails(judge: Judge) -> None:
    def rewrite(files: meaning.Files) -> dict[str, Result]:
        raise ValueError("no")

    found = with_rewriter(judge, rewrite)(Program({"main": "print(1)\n"}))
    assert (found.category, found.why) == (meaning.INTERNAL, "ValueError: no")


def test_a_rewrite_that_changes_again(judge: Judge) -> None:
    def rewrite(files: meaning.Files) -> dict[str, Result]:
        return {"main": Result("main.py", [], [], files["main"].encode() + b"#\n")}

    assert with_rewriter(judge, rewrite)(Program({"main": "print(1)\n"})).category == meaning.UNSTABLE


def test_several_modules(judge: Judge) -> None:
    files = {"main": "from other import y\nprint(y)\n", "other": "import torch\ny = torch.ones(1).cuda()\n"}
    found = judge(Program(files))
    assert found.category == meaning.FINE and found.fixed == ("DF101",)


def test_a_package_of_modules(judge: Judge) -> None:
    files = {
        "main": "import pkg.part\nprint(pkg.part.y)\n",
        "pkg": "import torch\n",
        "pkg.part": "from . import torch\ny = torch.ones(1, device='cuda')\n",
    }
    found = judge(Program(files))
    assert found.category == meaning.FINE and found.fixed == ("DF202",), meaning.shown(found)


def test_reduction(judge: Judge) -> None:
    program = """
    import os
    import torch
    def f(a):
        if a:
            b = torch.zeros(3)
            print(b)
        for i in range(2):
            print(i)
            x = torch.ones(2)
            print(x.no_such_move())
    torch.Tensor.no_such_move = torch.Tensor.cuda
    f(True)
    """

    def rewrite(files: meaning.Files) -> dict[str, Result]:
        return {"main": Result("main.py")}

    call = with_rewriter(judge, rewrite)
    found = call(Program({"main": dedent(program)}))
    assert found.category == meaning.FAILURE
    smaller = meaning.reduced(found, call, 60).program.files["main"]
    assert len(smaller.splitlines()) <= 7 and "no_such_move()" in smaller


WERE_WRONG = {
    "numbers in a file that says nothing of CUDA": """
        import torch
        q7 = _ = 0
        print(torch.ones(1, device=q7), torch.ones(1).to([0, 1][0]))
    """,
    "a number for a parameter whose default is -1": """
        import torch
        def f(x, q7=-1): return x.to(q7) if q7 != -1 else x
        print(f(torch.ones(1), 0))
    """,
    "a number in a named tuple": """
        import torch, collections
        q7 = collections.namedtuple("A", "i j")(1, 0)
        B = collections.namedtuple("B", ["k"])
        o7 = B(0)
        print(torch.ones(1).cuda(), torch.ones(1).to(o7.k))
    """,
    "a number in the field of a data class behind an iterator": """
        import torch
        from dataclasses import dataclass
        @dataclass
        class A:
            k: object = None
        o7 = next(iter([A(int("1"))]))
        print(torch.ones(1).cuda(), torch.ones(1).to(o7.k))
    """,
    "a number from __getattr__": """
        import torch
        class A:
            def step(self):
                print(torch.ones(2).cuda(), torch.ones(2).to(self.e8))
            def __getattr__(self, name):
                return 0
        A().step()
    """,
    "a number that is put into a list and a dictionary": """
        import torch
        q7, q8 = [None], {}
        q7[0] = 0
        q8["k"] = 1
        print(torch.ones(1).cuda(), torch.ones(1).to(q7[0]), torch.ones(1).to(q8["k"]))
    """,
    "a number from a method, and from a function that is called where it is defined": """
        import torch
        class A:
            def m(self): return 0
        @(lambda f: f())
        def q7(): return 1
        print(torch.ones(1).cuda(), torch.ones(1).to(A().m()), torch.ones(1).to(q7))
    """,
    "a function that is called in the body of its class, with a number for a string": """
        import torch
        class A:
            def f(x, place: str = "cuda"): return x.to(place)
            print(f(torch.ones(2), place=0), f(torch.ones(2), 0))
    """,
    "a default of the environment that goes out of sight": """
        import os, torch
        try:
            raise ValueError(os.environ.get("NO_SUCH", "cuda"))
        except ValueError as e:
            q7 = e.args[0]
            q8 = q7.split(":")
            print(torch.ones(1).to(q8[0]))
    """,
    "the method of a storage by its name": """
        import torch
        q7 = torch.ones(2).untyped_storage()
        print(len(getattr(q7, "cuda")()))
    """,
    "a storage that is bound on the line where it moves": """
        import torch
        def f():
            q7 = None
            q7 = torch.ones(2).untyped_storage(); print(len(q7.cuda()))
        f()
    """,
    "a module of torch whose name is bound again": """
        from torch import cuda as q7
        q7.synchronize()
        def q7():
            pass
    """,
    "a module of torch whose name is bound again, in a function": """
        from torch import cuda
        def f():
            cuda.synchronize()
        f()
        cuda = 5
    """,
    "a module of torch behind getattr, in a choice": """
        import torch
        q7 = getattr(torch, "cuda") if True else None
        q7.synchronize()
    """,
    "a scaler that a pattern binds": """
        import torch
        match torch.cuda.amp.GradScaler():
            case q7:
                pass
        print(q7.state_dict()["scale"] > 0)
    """,
    "a class whose name another class with its own cuda has": """
        import torch
        def f():
            class Net:
                def cuda(self):
                    pass
        def g():
            class Net(torch.nn.Linear):
                def move(self):
                    self.cuda()
                    return self
            print(Net(2, 2).cuda().weight.shape, Net(2, 2).move().weight.shape)
        g()
    """,
    "a method whose name is the default of an option": """
        import operator, os, torch
        getattr(torch.ones(1), os.environ.get("NO_SUCH", "cuda"))()
    """,
    "a method whose name is the default of an option, with methodcaller": """
        import operator, os, torch
        print(operator.methodcaller(os.environ.get("NO_SUCH", "cuda"))(torch.ones(1)))
    """,
    "a time, where a star import brings another float": """
        from torch import *
        import torch
        q7, q8 = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        q7.record()
        q8.record()
        print(q7.elapsed_time(q8).__class__.__name__)
    """,
    "the number of the device of what may be None": """
        import torch, types
        q7 = types.SimpleNamespace(x=(torch.ones(1) if True else None).cuda().get_device())
        print(torch.ones(2).to(q7.x))
    """,
    "a layer that is called cuda": """
        import torch, types
        q7 = types.SimpleNamespace(cuda=torch.nn.Linear(2, 2))
        torch.nn.Module.cuda(q7.cuda)
        print(q7.cuda(torch.ones(1, 2, device=q7.cuda.weight.device)).shape)
    """,
    "an assertion about the name of a device, in an odd form": """
        import torch
        q7 = torch.ones(1).cuda()
        assert (None or "cuda") in str(q7.device)
    """,
    "a refusal under an annotated flag": """
        import torch
        q7: object = torch.cuda.is_available()
        assert q7
    """,
    "a refusal under a flag that a lambda returns": """
        import torch
        q7 = (lambda w: w)(torch.cuda.device_count() > 0)
        if not q7:
            raise SystemExit("no GPU")
    """,
    "a refusal under a flag in a namespace": """
        import torch, types
        q7 = types.SimpleNamespace(x=torch.cuda.is_available())
        if not q7.x:
            raise SystemExit("no GPU")
    """,
    "a refusal under a flag in a loop": """
        import torch
        for q7 in [torch.cuda.is_available()]:
            if not q7:
                raise ValueError("stop")
    """,
    "a refusal of a device that is set in the program": """
        import torch
        q7 = "cuda"
        if q7 == "cuda" and not torch.cuda.is_available():
            raise ValueError("no GPU")
    """,
    "a refusal of a default device, in two steps": """
        import argparse, os, torch
        q7 = argparse.Namespace(x=os.environ.get("NO_SUCH", "cuda"))
        if q7.x == "cuda":
            if not torch.cuda.is_available():
                raise ValueError("no GPU")
    """,
    "a method that is mapped beside a device with the name of a parameter": """
        import torch
        def f():
            x = torch.device("cuda")
            print(list(map(torch.Tensor.cuda, [torch.ones(2)])), x)
        f()
    """,
    "a name with a number that is taken": """
        import torch
        device1 = 5
        def f(device1=3):
            return torch.ones(1).to("cuda:1"), device1
        print(device1, f())
    """,
    "a class that binds the name later": """
        import torch
        class A:
            x = torch.ones(1).cuda()
            device = "cuda"
            y = torch.ones(1).cuda()
        print(A.x, A.y, A.device)
    """,
    "a flag that changes after the device is chosen": """
        import torch
        def f(x):
            use_cuda = False
            device = torch.device("cuda" if use_cuda else "cpu")
            use_cuda = torch.cuda.is_available()
            if use_cuda:
                x = x.cuda()
            return x, device
        print(f(torch.ones(1)))
    """,
    "a flag that another function changes": """
        import torch
        from types import SimpleNamespace
        args = SimpleNamespace(cuda=False)
        args.cuda = torch.cuda.is_available()
        device = torch.device("cuda" if args.cuda else "cpu")
        def off(options):
            options.cuda = False
        def f(x):
            if args.cuda:
                x = x.cuda()
            return x
        print(f(torch.ones(1)))
        off(args)
        print(f(torch.ones(1)))
    """,
    "a flag of the same name in another function": """
        import torch
        def g():
            use_cuda = False
            device = torch.device("cuda" if use_cuda else "cpu")
            def h(x, use_cuda=torch.cuda.is_available()):
                if use_cuda:
                    x = x.cuda()
                return x, device
            return h(torch.ones(1))
        print(g())
    """,
    "a device that `globals` changes": """
        import torch
        device = torch.device("cuda")
        def f():
            return torch.ones(1).cuda()
        print(f())
        globals()["device"] = torch.device("cpu")
        print(f())
    """,
    "a device that `exec` changes": """
        import torch
        device = torch.device("cuda")
        exec("device = torch.device('cpu')")
        print(torch.ones(1).cuda())
    """,
}  # fmt: skip
MOVES = """
    import torch
    def f(x):
        return x.cuda()
    {}
    device = torch.device("cuda")
    def g():
        return f(torch.ones(1))
"""
CALLS = "import first\nimport torch\n{}first.f(torch.ones(2))\n"
WERE_WRONG_TOGETHER = {
    "a function that a circular import calls": {
        "main": "import first\nprint(first.g())\n",
        "first": MOVES.format("import second"),
        "second": CALLS.format("z = "),
    },
    "a function that a circle of three imports calls": {
        "main": "import first\nprint(first.g())\n",
        "first": MOVES.format("from second import third"),
        "second": "import third\n",
        "third": CALLS.format("z = "),
    },
    "a function that a call in a circle of imports calls": {
        "main": "import first\nprint(first.g())\n",
        "first": "import second\n" + dedent(MOVES.format("second.run()")),
        "second": CALLS.format("def run():\n    return "),
    },
    "a device that another file sets": {
        "main": "import first as q7, torch\nq7.device = torch.device('cpu')\nprint(q7.g())\n",
        "first": MOVES.format(""),
    },
    "a flag that another file sets": {
        "main": "import torch; import first as q7; q7.use_cuda = False\nprint(q7.f(torch.ones(1)))\n",
        "first": """
            import torch
            use_cuda = torch.cuda.is_available()
            device = torch.device("cuda" if use_cuda else "cpu")
            def f(x):
                return x.cuda() if use_cuda else x
        """,
    },
    "a device that another file sets by its name": {
        "main": "import first, torch\nsetattr(first, 'device', torch.device('cpu'))\nprint(first.g())\n",
        "first": MOVES.format(""),
    },
    "a device that another file sets by a name that it makes": {
        "main": "import first, torch\nsetattr(first, 'dev' + 'ice', torch.device('cpu'))\nprint(first.g())\n",
        "first": MOVES.format(""),
    },
    "a device that another file sets by its name, on several lines": {
        "main": """
            import first, torch
            setattr(  # why
                first,
                'device', torch.device('cpu'))
            print(first.g())
        """,
        "first": MOVES.format(""),
    },
    "a number through a star import of a file without its name": {
        "main": "import torch\nfrom second import gpu\nprint(torch.ones(1, device=gpu).sum())\n",
        "second": "from first import *\n",
        "first": "gpu = 1\n",
    },
}


@pytest.mark.parametrize("files", WERE_WRONG_TOGETHER.values(), ids=WERE_WRONG_TOGETHER)
def test_several_files_that_were_wrong(judge: Judge, files: meaning.Files) -> None:
    found = judge(Program({name: dedent(text).lstrip("\n") for name, text in files.items()}))
    assert found.category in (meaning.FINE, meaning.REPORTED), meaning.shown(found)


@pytest.mark.parametrize("program", WERE_WRONG.values(), ids=WERE_WRONG)
def test_programs_that_were_wrong(judge: Judge, program: str) -> None:
    found = judge(Program({"main": dedent(program).lstrip("\n")}))
    assert found.category in (meaning.FINE, meaning.REPORTED), meaning.shown(found)


KNOWN = 3  # at most so many of 100 programs are wrong as yet; the aim is 0


@pytest.mark.slow
def test_random_programs(judge: Judge) -> None:
    found = [judge(meaning_programs.program(Random(seed))) for seed in range(100)]
    wrong = [verdict for verdict in found if verdict.category in meaning.WRONG]
    assert len(wrong) <= KNOWN, "\n\n".join(map(meaning.shown, wrong))
    assert not {verdict.category for verdict in wrong} & {meaning.INTERNAL, meaning.UNPARSABLE}
    assert sum(verdict.category == meaning.INVALID for verdict in found) < 10
    assert sum(bool(verdict.fixed) for verdict in found) > 60


def test_programs_are_the_same_for_a_seed_and_differ_between_seeds() -> None:
    programs = [meaning_programs.program(Random(seed)) for seed in range(200)]
    assert programs == [meaning_programs.program(Random(seed)) for seed in range(200)]
    assert len({each.files["main"] for each in programs}) > 190
    assert len({kind for each in programs for kind in each.kinds}) > 500


def test_every_form_is_python() -> None:
    sections = meaning_forms.SECTIONS
    words = {
        word for forms in sections.values() for form in forms for word in re.findall(r"\$([A-Z]+)", form)
    }
    assert words == {name for name in sections if name.isupper()}
    for name in meaning_forms.SITUATIONS:
        for number, form in enumerate(sections[name]):
            maker = meaning_programs.Maker(Random(number))
            lines = meaning_forms.situation([form], name, maker)
            assert not meaning._syntax({**maker.files, "main": "\n".join(lines)}), (name, form)


def test_every_program_is_python() -> None:
    for seed in range(200):
        assert not meaning._syntax(meaning_programs.program(Random(seed)).files)
