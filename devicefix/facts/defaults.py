"""The value of a test where no environment variable is set."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from devicefix.facts.module import Facts

_DEPTH = 4  # how many names and expressions to follow
_GETTERS = ("os.getenv", "os.environ.get")
_TEXT: dict[str, Callable[[str], str]] = {"lower": str.lower, "upper": str.upper, "strip": str.strip}
_MADE: dict[str, Callable[[Any], Any]] = {"int": int, "bool": bool, "str": str}


class _UnknownError(Exception):
    """The value of an expression is not known."""


def value_by_default(facts: Facts, test: ast.expr) -> bool | None:
    """Return whether a test is true where no environment variable is set, None where that is not known.

    Args:
        facts: the facts of the module.
        test: the test, made of environment variables and constants, also by the names of variables.
    """
    try:
        return bool(_value(facts, test, _DEPTH))
    except _UnknownError:
        return None


def _value(facts: Facts, node: ast.expr, depth: int) -> Any:
    """Return the value of an expression.

    Raises:
        _UnknownError: it is not known.
    """
    if depth < 0:
        raise _UnknownError
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(facts, operand, depth)
        case ast.BoolOp(op=op, values=values):
            return _of_several(facts, values, depth, decisive=isinstance(op, ast.Or))
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return _compared(facts, left, operator, right, depth)
        case ast.Call():
            return _called(facts, node, depth)
        case ast.Name() | ast.Attribute() if (bound := facts.value(node)) is not None:
            return _value(facts, bound, depth - 1)
    raise _UnknownError


def _of_several(facts: Facts, values: list[ast.expr], depth: int, *, decisive: bool) -> bool:
    """Return whether `and` or `or` is true; one value decides if it is the right one."""
    unknown = False
    for each in values:
        try:
            if bool(_value(facts, each, depth)) is decisive:
                return decisive
        except _UnknownError:
            unknown = True
    if unknown:
        raise _UnknownError
    return not decisive


def _compared(facts: Facts, left: ast.expr, operator: ast.cmpop, right: ast.expr, depth: int) -> bool:
    if isinstance(operator, (ast.In, ast.NotIn)):
        if facts.resolve(right) == "os.environ":
            return isinstance(operator, ast.NotIn)
        if not isinstance(right, (ast.Tuple, ast.List, ast.Set)):
            raise _UnknownError
        found = _value(facts, left, depth) in [_value(facts, each, depth) for each in right.elts]
        return found is isinstance(operator, ast.In)
    if not isinstance(operator, (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
        raise _UnknownError
    same: bool = _value(facts, left, depth) == _value(facts, right, depth)
    return same is isinstance(operator, (ast.Eq, ast.Is))


def _called(facts: Facts, node: ast.Call, depth: int) -> Any:
    match node:
        case ast.Call(args=[_, *defaults], keywords=[]) if facts.call(node, *_GETTERS) and len(defaults) < 2:
            return _value(facts, defaults[0], depth) if defaults else None
        case ast.Call(func=ast.Name(id="int" | "bool" | "str" as name), args=[only], keywords=[]):
            value = _value(facts, only, depth)
            try:
                return _MADE[name](value)
            except (TypeError, ValueError):
                raise _UnknownError from None
        case ast.Call(func=ast.Attribute(value=text, attr=method), args=[]) if method in _TEXT:
            value = _value(facts, text, depth)
            if isinstance(value, str):
                return _TEXT[method](value)
    raise _UnknownError
