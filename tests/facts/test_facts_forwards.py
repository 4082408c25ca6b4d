"""Where a value goes: its uses, and the variables that hold it on the way."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from devicefix.facts import Facts
from devicefix.facts.flow.forwards import Followed, Forwards

# Each program binds `value()`; the lines on which it is used.
PROGRAMS = {
    "a name": ("a = value()\na.x", [2]),
    "two names and a walrus": ("a = b = value()\nif (c := a):\n    c.x, b.x", [2, 3, 3]),
    "a tuple": ("a, (b) = value(), 1\na.x\nb.y", [2]),
    "a list": ("a = [value()]\na[0].x", [1]),
    "a loop over a display": ("for a in [value(), 1]:\n    a.x\nb = [c.x for c in (value(),)]", [2]),
    "a loop over others": ("for a in (value() for _ in xs):\n    a.x", [1, 2]),
    "names for the elements of a comprehension": ("a, b = [value() for _ in xs]\na.x\nb.y", [1, 2, 3]),
    "a loop over a dictionary": ("for k, a in {1: value()}.items():\n    a.x\n    k.y", [1, 2]),
    "a name before a star": ("a, *b = value(), 1\na.x\nb.y", [1, 2]),
    "a name behind a star": ("b, c, a = *xs, value()\na.x\nb.y, c.y", [2]),
    "a context": ("with nullcontext(value()) as a:\n    a.x", [1, 2]),
    "a comprehension": ("b = [c.x for c in (value(),)]", [1]),
    "a counted loop": ("for i, a in enumerate([value()]):\n    a.x\n    i.x", [2]),
    "a capture": ("def f():\n    match value():\n        case a:\n            a.x\na.y", [4]),
    "a capture of a part": ("match [1, value()]:\n    case [b, a]:\n        a.x\n        b.x", [3]),
    "a conditional expression": ("a = value() if t else None\na.x", [2]),
    "another scope": ("a = value()\ndef f(a):\n    a.x\ndef g():\n    a.y", [5]),
    "a loop variable of another function": (
        "def f():\n    a = value()\n    a.x\ndef g(xs):\n    for a in xs:\n        a.y",
        [3],
    ),
    "a global": ("def f():\n    global a\n    a = value()\ndef g():\n    a.y", [5]),
    "a nonlocal name": (
        "def f():\n    def g():\n        nonlocal a\n        a = value()\n    a = None\n    a.x\na.y",
        [6],
    ),
    "an argument": ("def f(p, q=1):\n    q.x\n    p.y\nf(2, value())", [2, 4]),
    "a default": ("def f(p=value()):\n    p.x", [2]),
    "a returned value": ("def f():\n    return value()\na = f()\na.x", [2, 4]),
    "an attribute of its class": (
        "class A:\n    def f(self):\n        self.a = value()\n    def g(self):\n        self.a.x\n"
        "class B:\n    def g(self):\n        self.a.y\nA().a.z",
        [5, 9],
    ),
    "an attribute of a subclass": (
        "class A:\n    def f(self):\n        self.a = value()\n"
        "class B(A):\n    def g(self):\n        self.a.y",
        [6],
    ),
    "a field": ("class A:\n    a: int = value()\ndef f(c):\n    c.a.x", [4]),
    "an argument of a class and its attribute": (
        "class A:\n    def __init__(self, p):\n        self.a = p\n"
        "    def g(self):\n        self.a.x\nA(value())",
        [5, 6],
    ),
    "an option": ("p.add_argument('--my-a', default=value())\np.parse_args().my_a.x", [1, 2]),
    "an unknown function": ("f(value())", [1]),
    "a method is no attribute": ("o.a = value()\no.a.x\nm.a()", [2]),
    "itself": ("a = value()\na = a\na.x", [3]),
}


@pytest.mark.parametrize(("code", "lines"), PROGRAMS.values(), ids=PROGRAMS)
def test_uses(code: str, lines: list[int]) -> None:
    assert sorted(use.lineno for use in _followed(code).uses) == lines


def test_number_that_is_zero_is_not_followed_beyond_or() -> None:
    code = "a = value() or 1\na.x"
    assert [use.lineno for use in _followed(code, zero=True).uses] == [1]


def test_variables_have_their_bindings() -> None:
    followed = _followed("a = value()\na = 1\nb = a\ndef f(p):\n    pass\nf(b)")
    assert [(each.name, len(each.bindings)) for each in followed.variables] == [("a", 2), ("b", 1)]
    assert [each.name for each in followed.parameters] == ["p"]


def _followed(code: str, zero: bool = False) -> Followed:
    facts = Facts.read(dedent(code).encode())
    calls = (node for node in facts.tree.nodes if isinstance(node, ast.Call))
    made = next(node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "value")
    return Forwards(facts, zero).of(made)
