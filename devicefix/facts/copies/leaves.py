"""Tensors that an optimizer changes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from devicefix.facts.copies.expressions import keyword, viewed
from devicefix.facts.flow.order import path_of
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding
from devicefix.facts.values import last_name


def is_parameter(node: ast.expr) -> bool:
    """Return whether an expression is a view of a call of `nn.Parameter` that requires gradients."""
    while True:
        if isinstance(node, ast.Call) and last_name(node.func) == "Parameter":
            required = keyword(node, "requires_grad")
            return not (isinstance(required, ast.Constant) and required.value is False)
        inner = viewed(node)
        if inner is None:
            return False
        node = inner


def is_trained(facts: Facts, node: ast.expr) -> bool:
    """Return whether an optimizer changes a tensor: a parameter of a module, or what it is made with."""
    path = path_of(node)
    if path is None:
        return False
    if "." in path and facts.once(_any_parameter, facts.bindings(node)):
        return True
    return path in _optimized(facts)


def _any_parameter(_facts: Facts, bindings: Sequence[Binding]) -> bool:
    return any(binding.value is not None and is_parameter(binding.value) for binding in bindings)


def _optimized(facts: Facts) -> frozenset[str]:
    """Return the paths of the tensors that an object with a method `step` is made with."""
    return facts.once(_all_optimized, facts.tree.root)


def _all_optimized(facts: Facts, _root: object) -> frozenset[str]:
    found: set[str] = set()
    for node in facts.tree.nodes_with("step"):
        if isinstance(node, ast.Attribute) and node.attr == "step":
            for binding in facts.bindings(node.value):
                if isinstance(binding.value, ast.Call):
                    found.update(_displayed(binding.value))
    return frozenset(found)


def _displayed(call: ast.Call) -> Iterator[str]:
    """Return the paths in the lists that a call is given, such as `[w]` and `[{'params': [w]}]`."""
    for node in ast.walk(call):
        if isinstance(node, (ast.List, ast.Tuple)):
            yield from filter(None, map(path_of, node.elts))
