"""The functions that create tensors, and the calls around them, as several rules need them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts import Facts

# Functions of torch that create a tensor without a gradient history.
MAKERS = (
    "zeros", "ones", "empty", "full", "eye", "arange", "linspace", "tensor", "from_numpy",
    "rand", "randn", "randint", "randperm", "zeros_like", "ones_like", "rand_like", "randn_like",
    "Tensor", "FloatTensor", "DoubleTensor", "HalfTensor", "LongTensor", "IntTensor", "ByteTensor",
    "BoolTensor",
)  # fmt: skip
# Methods that return a tensor without a history for a tensor without one.
KEEPERS = {
    "cuda", "cpu", "to", "float", "double", "half", "long", "int", "byte", "bool", "type", "type_as",
    "view", "reshape", "unsqueeze", "unsqueeze_", "squeeze", "squeeze_", "transpose", "permute", "t",
    "contiguous", "clone", "repeat", "expand", "expand_as", "resize_", "pin_memory",
    "uniform_", "normal_", "fill_", "zero_", "random_", "bernoulli_",
}  # fmt: skip


def expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions of a statement, outer ones first, but none of nested statements or f-strings."""
    todo: list[ast.AST] = list(ast.iter_child_nodes(statement))[::-1]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.stmt, ast.JoinedStr, ast.ExceptHandler)):
            continue
        if isinstance(node, ast.expr):
            yield node
        todo += list(ast.iter_child_nodes(node))[::-1]


def is_variable(facts: Facts, node: ast.AST) -> bool:
    """Return whether a node is a call of `torch.autograd.Variable`."""
    if not isinstance(node, ast.Call):
        return False
    name = facts.resolve(node.func)
    if name is None and isinstance(node.func, ast.Name) and node.func.id == "Variable":
        return bool(facts.tree.star_imports) and facts.tree.scope(node).lookup("Variable") is None
    return name in ("torch.autograd.Variable", "torch.autograd.variable.Variable")
