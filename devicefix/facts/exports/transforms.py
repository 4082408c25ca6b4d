"""Find the functions that transform a parameter by Fourier, which no CPU does in half precision."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.exports.export import of_facts
from devicefix.facts.module import Facts
from devicefix.facts.scopes import dotted, with_defaults

_MODULE = "torch.fft."
_WIDENS = ("float", "double", "cfloat", "numpy", "tolist", "item", "size", "dim")


@of_facts(
    b"fft",
    pattern=rb"torch\.fft\.\w+\(|from torch import fft|import torch\.fft|from torch\.fft import",
    anywhere=True,
)
def transforming(facts: Facts) -> frozenset[tuple[str, tuple[str, int]]]:
    """Return the functions of a module that pass a parameter to `torch.fft`, with its name and position."""
    return frozenset(_transforming(facts))


def _transforming(facts: Facts) -> Iterator[tuple[str, tuple[str, int]]]:
    for node in facts.tree.nodes_with(".fft.", "rfft", "fft("):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if not (facts.resolve(node.func) or "").startswith(_MODULE):
            continue
        function = facts.tree.scope(node).node
        owner = facts.tree.parents.get(function)
        if isinstance(function, ast.FunctionDef) and isinstance(owner, ast.Module):
            sources = _sources(function, node)
            for position, (parameter, _) in enumerate(with_defaults(function.args)):
                if parameter.arg in sources:
                    yield function.name, (parameter.arg, position)


def _sources(function: ast.FunctionDef, call: ast.Call) -> set[str]:
    """Return the names that the operand of a call comes from, in a function, without a conversion."""
    found = set(_names(call.args[0]))
    for statement in reversed(function.body):
        if isinstance(statement, ast.Assign) and statement.lineno < call.lineno:
            targets = {name for target in statement.targets for name in _bound(target)}
            if not found.isdisjoint(targets):
                found = (found - targets) | set(_names(statement.value))
    return found


def _bound(target: ast.expr) -> Iterator[str]:
    return (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _names(node: ast.expr) -> Iterator[str]:
    """Yield the names whose tensors may have the type of an expression."""
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Call(func=function, args=arguments):
            widens = isinstance(function, ast.Attribute) and (
                function.attr in _WIDENS or "float32" in ast.unparse(node)
            )
            if not widens:
                if isinstance(function, ast.Attribute) and not (dotted(function) or "").startswith("torch."):
                    yield from _names(function.value)
                for argument in arguments[:1]:
                    yield from _names(argument)
        case ast.Subscript(value=value) | ast.UnaryOp(operand=value):
            yield from _names(value)
        case ast.BinOp(left=left, right=right):
            yield from _names(left)
            yield from _names(right)
