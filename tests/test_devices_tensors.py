"""Expressions of a statement, and calls of `Variable`."""

from __future__ import annotations

import ast

import pytest
from contexts import context_of, expression

from devicefix.devices.tensors import expressions, is_variable


def test_outer_expressions_come_first_and_nested_statements_are_left_out() -> None:
    (statement,) = ast.parse("if f(a):\n    g(b)\nelif h:\n    pass\n").body
    assert [ast.unparse(node) for node in expressions(statement)] == ["f(a)", "f", "a"]
    (statement,) = ast.parse('x = [f"{a}", b]').body
    assert [ast.unparse(node) for node in expressions(statement)] == ["x", "[f'{a}', b]", "b"]


@pytest.mark.parametrize(
    ("before", "code", "found"),
    [
        ("from torch.autograd import Variable\n", "Variable(x)", True),
        ("import torch\n", "torch.autograd.Variable(x)", True),
        ("from torch.autograd.variable import Variable as V\n", "V(x)", True),
        ("from other import Variable\n", "Variable(x)", False),
        ("from other import *\n", "Variable(x)", True),
        ("import torch\n", "Variable(x)", False),
        ("from torch.autograd import Variable\n", "Variable", False),
    ],
)
def test_a_variable(before: str, code: str, found: bool) -> None:
    context = context_of(f"{before}\ny = {code}.cuda()\n")
    assert is_variable(context.facts, expression(context, code)) is found
