"""The value of an expression where a user asks for nothing: no environment variable, no option is set."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from devicefix.facts.guards import ASKS, COUNTS
from devicefix.facts.module import Facts

_DEPTH = 4  # how many names and expressions to follow
_GETTERS = ("os.getenv", "os.environ.get")
_TEXT: dict[str, Callable[[str], str]] = {"lower": str.lower, "upper": str.upper, "strip": str.strip}
_MADE: dict[str, Callable[[Any], Any]] = {"int": int, "bool": bool, "str": str, "len": len}
_ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le,
}  # fmt: skip
_DISPLAYS = (ast.List, ast.Dict, ast.Set)


class _UnknownError(Exception):
    """The value of an expression is not known."""


class Defaults:
    """The values of expressions where a user asks for nothing, on a machine without CUDA.

    Args:
        facts: the facts of the module.
        options: the default of an option of the command line, as a literal; empty where it is not known.
    """

    def __init__(self, facts: Facts, options: Callable[[str], str] = lambda _: "") -> None:
        self._facts = facts
        self._options = options

    def truth(self, test: ast.expr) -> bool | None:
        """Return whether a test is true, None where that is not known."""
        try:
            return bool(self._value(test, _DEPTH))
        except _UnknownError:
            return None

    def _value(self, node: ast.expr, depth: int) -> Any:  # noqa: C901 (one case a kind)
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
                return not self._value(operand, depth)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
                return -value
            case ast.BoolOp(op=op, values=values):
                return self._of_several(values, depth, decisive=isinstance(op, ast.Or))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compared(left, op, right, depth)
            case ast.Call():
                return self._called(node, depth)
            case ast.Name() | ast.Attribute() if (bound := self._facts.value(node)) is not None:
                if isinstance(bound, _DISPLAYS):  # the program may add to it
                    raise _UnknownError
                return self._value(bound, depth - 1)
            case ast.Attribute(attr=name) if not self._facts.bindings(node):
                return self._option(name)
        raise _UnknownError

    def _option(self, name: str) -> Any:
        default = self._options(name)
        if not default:
            raise _UnknownError
        return ast.literal_eval(default)

    def _of_several(self, values: list[ast.expr], depth: int, *, decisive: bool) -> bool:
        """Return whether `and` or `or` is true; one value decides if it is the right one."""
        unknown = False
        for each in values:
            try:
                if bool(self._value(each, depth)) is decisive:
                    return decisive
            except _UnknownError:
                unknown = True
        if unknown:
            raise _UnknownError
        return not decisive

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr, depth: int) -> bool:
        if isinstance(op, (ast.In, ast.NotIn)):
            if self._facts.resolve(right) == "os.environ":
                return isinstance(op, ast.NotIn)
            if not isinstance(right, (ast.Tuple, ast.List, ast.Set)):
                raise _UnknownError
            found = self._value(left, depth) in [self._value(each, depth) for each in right.elts]
            return found is isinstance(op, ast.In)
        values = self._value(left, depth), self._value(right, depth)
        if (order := _ORDERS.get(type(op))) is not None:
            try:
                return order(*values)
            except TypeError:
                raise _UnknownError from None
        same: bool = values[0] == values[1]
        return same is isinstance(op, (ast.Eq, ast.Is))

    def _called(self, node: ast.Call, depth: int) -> Any:
        if self._facts.call(node, *ASKS):
            return False
        if self._facts.call(node, *COUNTS):
            return 0
        match node:
            case ast.Call(args=[_, *defaults], keywords=[]) if (
                self._facts.call(node, *_GETTERS) and len(defaults) < 2
            ):
                return self._value(defaults[0], depth) if defaults else None
            case ast.Call(func=ast.Name(id=name), args=[only], keywords=[]) if name in _MADE:
                value = self._value(only, depth)
                try:
                    return _MADE[name](value)
                except (TypeError, ValueError):
                    raise _UnknownError from None
            case ast.Call(func=ast.Attribute(value=text, attr=method), args=[]) if method in _TEXT:
                value = self._value(text, depth)
                if isinstance(value, str):
                    return _TEXT[method](value)
        raise _UnknownError
