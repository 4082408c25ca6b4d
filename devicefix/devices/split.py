"""Tensors that have just been made, and where they are sent: what several rules ask about them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.arguments import gpu_number
from devicefix.facts import Facts
from devicefix.facts.values import (
    choice,
    cpu,
    cuda_device,
    current_device,
    device_name,
    last_name,
    literal_index,
)

# What makes a tensor that has no history.
MAKERS = (
    "zeros", "ones", "empty", "full", "eye", "arange", "linspace", "tensor", "from_numpy",
    "rand", "randn", "randint", "randperm", "zeros_like", "ones_like", "rand_like", "randn_like",
    "Tensor", "FloatTensor", "DoubleTensor", "HalfTensor", "LongTensor", "IntTensor", "ByteTensor",
    "BoolTensor",
)  # fmt: skip
# What leaves a tensor without a history without one.
KEEPERS = {
    "cuda", "cpu", "to", "float", "double", "half", "long", "int", "byte", "bool", "type", "type_as",
    "view", "reshape", "unsqueeze", "unsqueeze_", "squeeze", "squeeze_", "transpose", "permute", "t",
    "contiguous", "clone", "repeat", "expand", "expand_as", "resize_", "pin_memory",
    "uniform_", "normal_", "fill_", "zero_", "random_", "bernoulli_",
}  # fmt: skip


def expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement, outer ones first: not those of statements in it, nor in an f-string."""
    todo: list[ast.AST] = list(ast.iter_child_nodes(statement))[::-1]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.stmt, ast.JoinedStr, ast.ExceptHandler)):
            continue
        if isinstance(node, ast.expr):
            yield node
        todo += list(ast.iter_child_nodes(node))[::-1]


def is_variable(facts: Facts, node: ast.AST) -> bool:
    """Whether a node is a call of `torch.autograd.Variable`."""
    if not isinstance(node, ast.Call):
        return False
    name = facts.resolve(node.func)
    if name is None and isinstance(node.func, ast.Name) and node.func.id == "Variable":
        return bool(facts.tree.star_imports) and facts.tree.scope(node).lookup("Variable") is None
    return name in ("torch.autograd.Variable", "torch.autograd.variable.Variable")


def is_device(facts: Facts, target: ast.expr | None) -> bool:
    """Whether what `.to(...)` is handed is a device for sure, and not the CPU."""
    if target is None or cpu(facts, target):
        return False
    if isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
        if target.func.attr == "get_device" and not target.args:
            return True
    return (
        cuda_device(facts, target)
        or literal_index(target) is not None
        or gpu_number(target)
        or device_name(last_name(target))
        or current_device(facts, target)
        or choice(facts, target) is not None
    )
