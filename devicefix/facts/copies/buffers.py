"""Buffers of a module that are changed in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.flow.tensors import FUNCTIONS, METHODS, changes_numbers
from devicefix.facts.module import Facts

_NO_GRADIENTS = ("torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad")
# What has no gradient; the table has the functions, methods and attributes of tensors.
_BUILTINS = {"len", "int", "float", "bool"}


def changed_buffer(facts: Facts, name: str) -> ast.Attribute | None:
    """Return a use of a buffer that changes it in place where gradients are recorded, or None."""
    uses = _uses(facts, name)
    return next((use for use in uses if is_changed(facts, use) and not without_gradients(facts, use)), None)


def is_only_counted(facts: Facts, name: str) -> bool:
    """Return whether a module only changes a buffer, and reads it for what has no gradient."""
    allowed = (is_changed, _moves_within, _is_counted)
    return all(any(is_allowed(facts, use) for is_allowed in allowed) for use in _uses(facts, name))


def _uses(facts: Facts, name: str) -> Iterator[ast.Attribute]:
    for node in facts.tree.nodes_with(name):
        if isinstance(node, ast.Attribute) and node.attr == name:
            yield node


def is_changed(facts: Facts, use: ast.expr) -> bool:
    """Return whether a statement only changes a tensor in place: an item of it is set, or the like."""
    parents, item = facts.tree.parents, use
    while isinstance(parent := parents.get(item), ast.Subscript) and parent.value is item:
        item = parent
    if isinstance(parent, ast.AugAssign) and parent.target is item:
        return True
    if isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Store):
        return True
    while isinstance(parent, ast.Attribute) and changes_numbers(parent.attr):
        called = parents.get(parent)  # `x.mul_(a).add_(b)`
        parent = parents.get(called) if isinstance(called, ast.Call) else None
        if isinstance(parent, ast.Expr):
            return True
    return False


def _moves_within(facts: Facts, use: ast.Attribute) -> bool:
    """Return whether a use is in what an item of the same buffer is set to."""
    match facts.tree.statement(use):
        case ast.Assign(targets=[target]):
            parts = (node for node in ast.walk(target) if isinstance(node, ast.Attribute))
            return any(part.attr == use.attr and is_changed(facts, part) for part in parts)
    return False


def _is_counted(facts: Facts, use: ast.expr) -> bool:
    """Return whether an expression becomes something that has no gradient."""
    node: ast.AST | None = facts.tree.parents.get(use)
    while isinstance(node, (ast.expr, ast.keyword)):
        is_constant = isinstance(node, ast.Attribute) and node.attr in METHODS["constant"]
        if is_constant or isinstance(node, ast.Compare):
            return True
        if facts.call(node, *FUNCTIONS["constant"]) or _is_builtin(facts, node):
            return True
        node = facts.tree.parents.get(node)
    return False


def _is_builtin(facts: Facts, node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in _BUILTINS:
            return facts.tree.scope(node).lookup(name) is None
    return False


def without_gradients(facts: Facts, use: ast.expr) -> bool:
    """Return whether an expression is evaluated where no gradients are recorded."""
    for _, parent in facts.tree.ancestors(use):
        match parent:
            case ast.With(items=items):
                asked = [item.context_expr for item in items]
            case ast.FunctionDef(decorator_list=asked) | ast.AsyncFunctionDef(decorator_list=asked):
                pass
            case _:
                continue
        named = (each.func if isinstance(each, ast.Call) else each for each in asked)
        if any(facts.resolve(each) in _NO_GRADIENTS for each in named):
            return True
    return False
