"""The value of an expression where a user asks for nothing: no environment variable, no option is set."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.guards import ASKS, COUNTS, ORDERS, truth
from devicefix.facts.module import Facts

_DEPTH = 4  # how many names to follow
_GETTERS = ("os.getenv", "os.environ.get")
_METHODS = ("lower", "upper", "strip")
_MADE: dict[str, Callable[[Any], Any]] = {"int": int, "bool": bool, "str": str, "len": len}
_UNKNOWN = "the value of an expression is not known"
_DISPLAYS = (ast.List, ast.Dict, ast.Set)


class Defaults:
    """The values of expressions where a user asks for nothing, on a machine without CUDA.

    Args:
        facts: the facts of the module.
        options: the default of an option of the command line, as a literal; empty where it is not known.
    """

    def __init__(self, facts: Facts, options: Callable[[str], str] = lambda _: "") -> None:
        self._facts = facts
        self._options = options
        self._sources = Sources(facts, How.BOUND | How.DEFAULT, 1)

    def truth(self, test: ast.expr, depth: int = _DEPTH) -> bool | None:
        """Return whether a test is true, None where that is not known."""
        return truth(test, partial(self._of_part, depth=depth))

    def _of_part(self, part: ast.expr, depth: int) -> bool | None:
        try:
            return bool(self._value(part, depth))
        except (TypeError, ValueError):
            return None

    def _value(self, node: ast.expr, depth: int) -> Any:
        """Return the value of an expression.

        Raises:
            TypeError, ValueError: it is not known, or there is none.
        """
        match node:
            case ast.Constant(value=value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
                return -value
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                known = self.truth(node, depth)
                if known is not None:
                    return known
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compared(left, op, right, depth)
            case ast.Call():
                return self._called(node, depth)
            case ast.Name() | ast.Attribute() if len(found := [*self._sources.of(node)][1:]) == 1:
                if depth and not isinstance(found[0].node, _DISPLAYS):  # the program may add to these
                    return self._value(found[0].node, depth - 1)
            case ast.Attribute(attr=name) if not self._facts.bindings(node) and self._options(name):
                return ast.literal_eval(self._options(name))
        raise ValueError(_UNKNOWN)

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr, depth: int) -> Any:
        if isinstance(op, (ast.In, ast.NotIn)) and self._facts.resolve(right) == "os.environ":
            return isinstance(op, ast.NotIn)
        if type(op) not in ORDERS:
            raise ValueError(_UNKNOWN)
        return ORDERS[type(op)](self._value(left, depth), self._value(right, depth))

    def _called(self, node: ast.Call, depth: int) -> Any:
        if self._facts.call(node, *ASKS, *COUNTS):
            return 0
        match node:
            case ast.Call(args=[_, *defaults], keywords=[]) if self._facts.call(node, *_GETTERS):
                return self._value(defaults[0], depth) if defaults else None
            case ast.Call(func=ast.Name(id=name), args=[only], keywords=[]) if name in _MADE:
                return _MADE[name](self._value(only, depth))
            case ast.Call(func=ast.Attribute(value=text, attr=method), args=[]) if method in _METHODS:
                value = self._value(text, depth)
                if isinstance(value, str):
                    return getattr(value, method)()
        raise ValueError(_UNKNOWN)
