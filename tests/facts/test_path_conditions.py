"""The conditions on which code is evaluated."""

from __future__ import annotations

import ast

import pytest

from devicefix.facts import Facts
from devicefix.facts.path_conditions import conditions_around


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("if a:\n    here", ["a"]),
        ("if a:\n    pass\nelse:\n    here", ["not a"]),
        ("if a:\n    pass\nelif b:\n    here", ["b", "not a"]),
        ("if here:\n    pass", []),
        ("while a:\n    here", ["a"]),
        ("here if a else b", ["a"]),
        ("b if a else here", ["not a"]),
        ("a and b and here and c", ["a", "b"]),
        ("a or here", ["not a"]),
        ("[here for x in y if a if b]", ["a", "b"]),
        ("[x for x in y if here]", []),
        ("if a:\n    f(b and here)", ["b", "a"]),
    ],
)
def test_conditions(code: str, expected: list[str]) -> None:
    facts = Facts.read(code.encode())
    (node,) = facts.tree.reads("here")
    found = [
        ast.unparse(test if truth else ast.UnaryOp(ast.Not(), test))
        for test, truth in conditions_around(facts.tree, node)
    ]
    assert found == expected
