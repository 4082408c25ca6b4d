"""Find devices that the program itself replaces right below where there is no CUDA."""

from __future__ import annotations

import ast

from devicefix.facts.module import Facts
from devicefix.facts.scopes import dotted


def is_replaced(facts: Facts, value: ast.expr) -> bool:
    """Return whether the statement below a variable replaces the device that it is bound to without CUDA."""
    parent = facts.tree.parents.get(value)
    match parent:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return _replaces(facts, _next(facts, parent), name)
    return False


def _next(facts: Facts, statement: ast.stmt) -> ast.stmt | None:
    """Return the statement below another one, in the same block."""
    block, following = facts.tree.block(statement), facts.tree.position(statement) + 1
    return block[following] if following < len(block) else None


def _replaces(facts: Facts, statement: ast.stmt | None, target: str) -> bool:
    """Return whether a statement binds a variable or attribute to something else without CUDA.

    Other branches of it, for other kinds of devices, do so as well.
    """
    if not isinstance(statement, ast.If) or not any(_binds(each, target) for each in statement.body):
        return False
    if _is_without_cuda(facts, statement.test, target):
        return True
    return len(statement.orelse) == 1 and _replaces(facts, statement.orelse[0], target)


def _binds(statement: ast.stmt, target: str) -> bool:
    return isinstance(statement, ast.Assign) and [dotted(each) for each in statement.targets] == [target]


def _is_without_cuda(facts: Facts, test: ast.expr, target: str) -> bool:
    """Return whether a test is true without CUDA, perhaps only for a device of CUDA."""
    tests = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    others = [each for each in tests if not facts.guards.implies(each, False)]
    return len(others) < len(tests) and all(_asks_for_cuda(each, target) for each in others)


def _asks_for_cuda(test: ast.expr, target: str) -> bool:
    """Return whether a test is whether a device is one of CUDA: `"cuda" in device`, `device == "cuda"`."""
    match test:
        case ast.Compare(left=ast.Constant(value="cuda"), ops=[ast.In()], comparators=[device]):
            return dotted(device) == target
        case ast.Compare(left=device, ops=[ast.Eq()], comparators=[ast.Constant(value="cuda")]):
            return dotted(device) == target
        case ast.Call(
            func=ast.Attribute(attr="startswith" | "__contains__"), args=[ast.Constant(value="cuda")]
        ):
            return isinstance(test.func, ast.Attribute) and dotted(test.func.value) == target
    return False
