"""The uses of a device, or of its name, that take its number: the CPU has none."""

from __future__ import annotations

import ast

from devicefix.facts.module import Facts
from devicefix.facts.scopes import dotted
from devicefix.facts.uses import Uses

_PARTS = ("split", "rsplit", "partition", "rpartition")
_WITHOUT = ("replace", "removeprefix", "strip", "lstrip")
_ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.Subscript)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def number_taken(uses: Uses, value: ast.expr) -> ast.expr | None:
    """Return a use of a device, or of its name, that takes its number, which the CPU does not have.

    Such are `device.split(":")[1]`, `device[5:]`, `device.replace("cuda:", "")` and `device.index + 1`. A use
    under a condition on the device itself is left to the program.

    Args:
        uses: the uses of values in the module.
        value: the expression whose value is the device or its name.

    Returns:
        The first such use in the order of the source, None if there is none in the module.
    """
    found = [use for use in uses.of(value).uses if _takes_number(uses.facts, use)]
    return min(found, key=lambda use: (use.lineno, use.col_offset), default=None)


def _takes_number(facts: Facts, node: ast.expr) -> bool:
    """Return whether an expression takes the number of a device."""
    if facts.is_guarded(node) or _is_asked_about(facts, node):
        return False
    parent = facts.tree.parents.get(node)
    match parent:
        case ast.Subscript(value=text, slice=index):
            return text is node and not _is_start(index)
        case ast.Attribute(attr="index"):
            return _is_number(facts, parent)
        case ast.Attribute(attr=attr):
            call = facts.tree.parents.get(parent)
            return isinstance(call, ast.Call) and call.func is parent and _method_takes(facts, call, attr)
        case ast.Call(func=func):
            return (facts.resolve(func) or "").startswith("re.") or dotted(func) == "int"
    return False


def _is_start(index: ast.expr) -> bool:
    """Return whether an index takes the start of a name, which is its type."""
    if isinstance(index, ast.Slice):
        return index.lower is None or (isinstance(index.lower, ast.Constant) and index.lower.value == 0)
    return isinstance(index, ast.Constant) and isinstance(index.value, str)  # no name, but a dictionary


def _method_takes(facts: Facts, call: ast.Call, method: str) -> bool:
    """Return whether a method of a device's name takes its number."""
    if method in _WITHOUT:
        return bool(call.args)
    if method not in _PARTS:
        return False
    item = facts.tree.parents.get(call)
    first = isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Constant) and item.slice.value == 0
    return not first


def _is_number(facts: Facts, node: ast.Attribute) -> bool:
    """Return whether `device.index` is called, or used as a number, which None is not."""
    parent = facts.tree.parents.get(node)
    match parent:
        case ast.Call(func=func):
            return func is node or dotted(func) in ("int", "range")
        case ast.Compare(ops=[op, *_]):
            return isinstance(op, _ORDER)
        case ast.BinOp(left=ast.Constant(value=str())):
            return False
        case ast.Subscript(slice=index):
            return index is node
    return isinstance(parent, _ARITHMETIC)


def _is_asked_about(facts: Facts, node: ast.expr) -> bool:
    """Return whether a node is evaluated under a condition that compares the same device or its name."""
    path = dotted(node)
    return path is not None and any(
        isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test and _asks(parent.test, path)
        for child, parent in facts.tree.ancestors(node)
    )


def _asks(test: ast.expr, path: str) -> bool:
    return any(
        (isinstance(part, ast.Compare) and not isinstance(part.ops[0], (ast.Is, ast.IsNot)))
        or isinstance(part, ast.Call)
        for part in ast.walk(test)
        if any(dotted(each) == path for each in ast.walk(part))
    )
