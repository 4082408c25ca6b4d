"""The names that are bound, and the statements that have run, at a place: proofs, and random programs."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from textwrap import dedent, indent

import pytest

from devicefix.facts import Facts
from devicefix.facts.bound import Bound


def proven(code: str, name: str = "d") -> bool:
    """Return whether a name is bound at the last `use(…)` of a module."""
    facts = Facts.read(dedent(code).lstrip("\n").encode())
    sites = [
        node
        for node in ast.walk(facts.tree.module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "use"
    ]
    return Bound(facts).name(name, max(sites, key=lambda node: node.lineno))


def cases(text: str) -> dict[str, str]:
    """Return the programs of a block of code by their names, each of which is a comment above one."""
    parts = [part.partition("\n") for part in dedent(text).strip().split("\n\n")]
    return {name.removeprefix("# "): f"{code}\n" for name, _, code in parts}


BOUND = cases(
    """
    # an assignment
    d = 1
    use()

    # a nonlocal name
    def f():
        d = 1
        def g():
            nonlocal d
            use()
        g()

    # an unpacked value
    a, (d, *b) = f()
    use()

    # an import
    import a.b as d
    use()

    # a branch that always runs
    if True:
        import a as d
    else:
        c = 1
    use()

    # both branches
    if a:
        d = 1
    else:
        d = 2
    use()

    # every branch that goes on
    if a:
        d = 1
    elif b:
        raise E
    else:
        import sys
        sys.exit()
    use()

    # each part of a try statement
    try:
        import d
    except E:
        d = None
    use()

    # a handler that ends the program
    try:
        import d
    except E:
        exit(1)
    use()

    # the last part of a try statement
    try:
        f()
    finally:
        d = 1
    use()

    # an endless loop
    while True:
        d = f()
        if d:
            break
    use()

    # a loop variable
    for d in f():
        use()

    # a context
    with open(a) as d:
        use()

    # inside a context of torch
    import torch
    with torch.no_grad():
        d = 1
    use()

    # an exception
    try:
        f()
    except E as d:
        use()

    # a function that is called later
    def f():
        use()
    d = 1
    f()

    # a function that is not called
    def f():
        use()
    d = 1

    # a method of a class that is used later
    class A:
        def f(self):
            use()
    d = 1
    A()

    # a class whose subclass is used later
    class A:
        def f(self):
            use()
    class B(A):
        pass
    d = 1
    B()

    # a decorator that calls nothing
    import torch
    @torch.no_grad()
    def f():
        use()
    d = 1

    # a function that is defined later
    f()
    d = 1
    def f():
        use()

    # a property
    class A:
        @property
        def f(self):
            use()
        @f.setter
        def f(self, a):
            pass
    d = 1

    # a lambda that is called later
    f = lambda: use()
    d = 1
    f()

    # a parameter
    def f(d):
        use()

    # a variable of a comprehension
    a = [use() for d in b]

    # a variable of the function around it
    def f():
        d = 1
        return lambda: use()

    # a global variable
    d = 1
    def f():
        d = 2
        def g():
            global d
            use()

    # a class variable
    class A:
        d = 1
        use()

    # read before
    if a:
        import d
    def f():
        d.g()
        use()

    # read by the statement
    try:
        import d
    except E:
        pass
    def f():
        return d.g(use())

    # read by a test
    if a:
        import d
    def f():
        if b:
            pass
        elif d.g():
            use()

    # a star import
    from a import *
    use()
    """
)
UNBOUND = cases(
    """
    # before the assignment
    use()
    d = 1

    # deleted
    d = 1
    del d
    use()

    # deleted and read by a lambda
    d = 1
    a = [lambda: use()]
    del d

    # deleted in a loop
    d = 1
    for i in f():
        use()
        del d

    # deleted in a function
    d = 1
    def f():
        global d
        del d
    def g():
        use()

    # one branch
    if a:
        d = 1
    use()

    # a branch of a long chain
    if a:
        d = 1
    elif b:
        pass
    else:
        d = 1
    use()

    # a try statement
    try:
        import d
    except E:
        pass
    use()

    # a handler
    try:
        d = f()
    except E:
        use()

    # below an exception's name
    try:
        f()
    except E as d:
        pass
    use()

    # below a loop
    for d in f():
        pass
    use()

    # a loop that may be left
    while True:
        if a:
            break
        d = 1
    use()

    # an earlier turn of a loop
    for i in a:
        use()
        d = 1

    # a context that swallows errors
    from contextlib import suppress
    with suppress(E):
        d = f()
    use()

    # a context that may swallow errors
    with f():
        d = f()
    use()

    # another case
    match a:
        case {'d': d}:
            pass
        case _:
            use()

    # below a case
    match a:
        case [*d]:
            pass
    use()

    # a walrus that may be skipped
    a = b and (d := f())
    use()

    # a function that is called before
    def f():
        use()
    f()
    d = 1

    # a function that another one calls before
    def f():
        use()
    def g():
        f()
    g()
    d = 1

    # a function that is handed on before
    def f():
        use()
    h(a=[f])
    d = 1

    # a function of a loop
    for i in a:
        def f():
            use()
        f()
    d = 1

    # a function of a branch
    if a:
        def f():
            use()
        f()
    d = 1

    # a function of a context
    with a:
        def f():
            use()
        f()
    d = 1

    # an async function
    import asyncio
    async def f():
        use()
    asyncio.run(f())
    d = 1

    # a decorated function
    def call(f):
        f()
    @call
    def f():
        use()
    d = 1

    # a decorated method
    from a import b
    class A:
        @b
        def f(self):
            use()
    d = 1

    # a decorator
    def f(g):
        use()
    @f
    def g():
        pass
    d = 1

    # a default
    def f():
        use()
    def g(a=f()):
        pass
    d = 1

    # a default itself
    def f(a=use()):
        pass
    d = 1

    # a class body
    class A:
        use()
    d = 1

    # a class body that calls its function
    class A:
        def f():
            use()
        f()
    d = 1

    # an object made before
    class A:
        def f(self):
            use()
    a = A()
    a.f()
    d = 1

    # an object of a subclass
    class A:
        def f(self):
            use()
    class B(A):
        pass
    B().f()
    d = 1

    # a subclass that is seen
    class A:
        def __init_subclass__(cls):
            use()
    class B(A):
        pass
    d = 1

    # a metaclass
    class A(metaclass=M):
        def f(self):
            use()
    d = 1

    # a lambda that is called before
    f = lambda: use()
    f()
    d = 1

    # a lambda in a dictionary
    a = {'f': lambda: use()}
    a['f']()
    d = 1

    # a generator
    a = list(use() for i in b)
    d = 1

    # a call by name
    def f():
        use()
    eval('f()')
    d = 1

    # a module's guard before the definition
    def main():
        use()
    if __name__ == '__main__':
        main()
    d = 1

    # only under a module's guard
    def main():
        use()
    if __name__ == '__main__':
        d = 1
        main()

    # a local import after the use
    import d
    def f():
        use()
        import d

    # a local name of a branch
    d = 1
    def f():
        if a:
            d = 2
        use()

    # a closure that is called before
    def f():
        def g():
            use()
        g()
        d = 1

    # a class variable in a method
    class A:
        d = 1
        def f(self):
            use()

    # set by a function
    def f():
        global d
        d = 1
    f()
    use()

    # a star import below
    use()
    from a import *

    # read in a branch
    if a:
        import d
    def f():
        if b:
            d.g()
        use()

    # read by a handled statement
    if a:
        import d
    def f():
        try:
            d.g()
        except E:
            use()

    # read perhaps
    if a:
        import d
    def f():
        return b and d.g(), use()

    # read by another function
    if a:
        import d
    def f():
        lambda: d
        use()

    # read and deleted
    if a:
        import d
    d
    del d
    use()

    # a nonlocal name in another function
    def f():
        if a:
            d = 1
        def g():
            nonlocal d
            d = 1
        use()

    # a nonlocal name is no name of the module
    def f():
        d = 0
        def g():
            nonlocal d
            d = 1
        g()
    f()
    use()

    # a nonlocal name that is deleted
    def f():
        d = 1
        def g():
            nonlocal d
            del d
        g()
        use()

    # a global name that is deleted
    d = 1
    def g():
        global d
        del d
    g()
    use()

    # nothing
    use()
    """
)


@pytest.mark.parametrize("name", BOUND)
def test_bound(name: str) -> None:
    assert proven(BOUND[name])


@pytest.mark.parametrize("name", UNBOUND)
def test_not_bound(name: str) -> None:
    assert not proven(UNBOUND[name])


def test_builtins_are_bound() -> None:
    assert proven("use()\n", "len")
    assert proven("use()\n", "__file__")
    assert not proven("use()\nlen = 1\n", "len")


def test_a_name_is_bound_at_a_new_line() -> None:
    facts = Facts.read(b"import a\nd = 1\n\n\ndef f(b):\n    e = d\n    use(e)\n")
    bound = Bound(facts)
    first, second, function = facts.tree.module.body
    assert isinstance(function, ast.FunctionDef)
    assert bound.name_after("a", first) and not bound.name_after("d", first) and bound.name_after("d", second)
    assert not bound.name_after("a", None) and bound.name_after("len", None)
    assert bound.name_after("b", None, function) and bound.name_after("d", None, function)
    assert not bound.name_after("e", None, function) and bound.name_after("e", function.body[0], function)


def test_a_star_import_may_bind_a_name_at_a_new_line() -> None:
    facts = Facts.read(b"import a\nfrom b import *\n")
    bound = Bound(facts)
    first, second = facts.tree.module.body
    assert not bound.name_after("d", first) and bound.name_after("d", second)
    facts = Facts.read(b"import a\n")
    assert not Bound(facts).name_after("d", facts.tree.module.body[0])


def test_a_block_that_never_ends_has_not_run_inside() -> None:
    facts = Facts.read(b"def f(x):\n    with x:\n        return use(x)\n")
    function = facts.tree.module.body[0]
    assert isinstance(function, ast.FunctionDef)
    block = function.body[0]
    assert isinstance(block, ast.With)
    assert not Bound(facts).ran(block, block.body[0], function)


def test_a_statement_has_run() -> None:
    facts = Facts.read(b"a = 1\n\n\ndef f():\n    use()\n\n\nb = 2\nf()\nc = 3\n")
    bound = Bound(facts)
    first, function, second, _, third = facts.tree.module.body
    assert isinstance(function, ast.FunctionDef)
    inside = function.body[0]
    assert bound.ran(None, first) and bound.ran(first, inside) and bound.ran(second, inside)
    assert not bound.ran(third, inside) and not bound.ran(second, first) and bound.ran(second, third)


# -- random programs -------------------------------------------------------------------------------------

SIMPLE = [
    "d = 1",
    "maybe()",
    "fail()",
    "import os as d",
    "a = maybe() and (d := 1)",
    "a = (d := 1) and maybe()",
]
SIMPLE += ["if maybe():\n    del d", "if maybe():\n    d += 1", "a = d", "maybe() and d"]
COMPOUND = {
    "if": "if maybe():\n{}",
    "else": "if maybe():\n{}else:\n{}",
    "elif": "if maybe():\n{}elif maybe():\n{}else:\n{}",
    "for": "for d in some():\n{}else:\n    maybe()\n",
    "while": "while maybe():\n{}",
    "endless": "while True:\n    tick()\n{}    if maybe():\n        break\n",
    "try": "try:\n{}except Failed as d:\n{}",
    "tries": "try:\n{}except Failed:\n{}else:\n{}finally:\n    maybe()\n",
    "finally": "try:\n{}except Failed:\n    pass\nfinally:\n{}",
    "with": "with open('/dev/null') as d:\n{}",
    "suppress": "with suppress(Failed):\n{}",
    "match": "match maybe():\n    case True as d:\n{}    case _:\n{}",
    "def": "def f{number}():\n{}",
    "decorated": "@handed\ndef f{number}():\n{}",
    "class": "class f{number}:\n    def __init__(self):\n        {lazy}\n{}",
    "handed": "handed(lambda: {lazy})\n",
    "lambda": "f{number} = lambda: {lazy}\n",
}
MOST_STEPS = 300


class Program:
    """A random program that binds `d`, reads it at numbered sites, and takes random branches as it runs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sites = self.functions = 0
        self.code = "".join(self.statement(3, ()) for _ in range(6)) + "d = 1\n" * self.random.randrange(2)

    def statement(self, depth: int, around: tuple[str, ...]) -> str:
        """Return a statement, which is compound down to a depth."""
        if depth == 0 or self.random.random() < 0.55:
            return self.simple(around)
        kind = self.random.choice([*COMPOUND])
        text = COMPOUND[kind]
        self.functions += 1
        for _ in range(text.count("{}")):
            block = "".join(
                self.statement(depth - 1, (*around, kind)) for _ in range(self.random.randint(1, 3))
            )
            text = text.replace("{}", indent(block, "    " * (1 + (kind == "match"))), 1)
        return text.replace("{number}", str(self.functions)).replace("{lazy}", self.lazy())

    def simple(self, around: tuple[str, ...]) -> str:
        """Return a simple statement that can be inside some compound ones, from the outermost on."""
        number = self.random.random()
        if number < 0.4:
            self.sites += 1
            return f"late({self.sites}, lambda: d)\n"
        if number < 0.55 and self.functions:
            return f"call(lambda: f{self.random.randint(1, self.functions)})\n"
        leaving = ["return"] * any(kind in ("def", "decorated") for kind in around)
        leaving += ["break", "continue"] * any(kind in ("for", "while", "endless") for kind in around)
        return self.random.choice(SIMPLE + leaving) + "\n"

    def lazy(self) -> str:
        """Return an expression that reads `d`."""
        self.sites += 1
        return f"late({self.sites}, lambda: d)"


class Run:
    """One run of a random program, with the functions that it calls.

    Attributes:
        missing: the sites at which `d` was not bound.
    """

    def __init__(self, program: Program) -> None:
        self._random = program.random
        self._steps = 0
        self.missing: set[int] = set()
        names = {
            name: getattr(self, name) for name in ("tick", "maybe", "fail", "some", "late", "call", "handed")
        }
        names |= {"suppress": suppress, "Failed": Failed}
        with suppress(Exception, Ended):
            exec(program.code, names)
            for function in [value for name, value in names.items() if name[1:].isdigit()]:
                with suppress(Exception):
                    function()

    def tick(self) -> None:
        """Count a step."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise Ended

    def maybe(self) -> bool:
        """Return true or false."""
        self.tick()
        return self._random.random() < 0.5

    def some(self) -> range:
        """Return a range of no, one or two numbers."""
        return range(self.maybe() + self.maybe())

    def fail(self) -> None:
        """Raise an error, or don't."""
        if self.maybe():
            raise Failed

    def late(self, site: int, value: Callable[[], object]) -> None:
        """Read `d` at a site."""
        self.tick()
        try:
            value()
        except NameError:
            self.missing.add(site)

    def call(self, name: Callable[[], Callable[[], object]]) -> None:
        """Call a function of the program, if it is defined."""
        self.tick()
        with suppress(NameError, TypeError):
            name()()

    def handed(self, function: Callable[[], object]) -> Callable[[], object]:
        """Call a function that is an argument, or don't."""
        if self.maybe():
            function()
        return function


def late_reads(facts: Facts) -> Iterator[tuple[str, ast.AST]]:
    """Yield the calls of `late`, each with the lambda's `d`."""
    for node in ast.walk(facts.tree.module):
        match node:
            case ast.Call(func=ast.Name(id="late"), args=[_, ast.Lambda(body=body)]):
                yield facts.source.code(node), body


class Failed(Exception):
    """An error that a program may catch."""


class Ended(BaseException):
    """The end of a program that runs too long."""


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_what_is_proven_of_random_programs_holds_when_they_run(first: int) -> None:
    proofs = 0
    for seed in range(first, first + 100):
        program = Program(seed)
        try:
            facts = Facts.read(program.code.encode())
            compile(program.code, "", "exec")
        except SyntaxError:  # `break` in the function of a loop, and the like
            continue
        bound = Bound(facts)
        proven = {int(call[5 : call.index(",")]): bound.name("d", node) for call, node in late_reads(facts)}
        missing = set[int]().union(*(Run(program).missing for _ in range(15)))
        proofs += sum(proven.values())
        wrong = {site for site in missing if proven[site]}
        assert not wrong, f"seed {seed}, sites {wrong}:\n{program.code}"
    assert proofs > 50
