"""Evaluate conditions in three values: true, false, or None where that depends on what is not known."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Eq: operator.eq, ast.Is: operator.eq, ast.NotEq: operator.ne, ast.IsNot: operator.ne,
}  # fmt: skip


def truth(test: ast.expr, of_part: Callable[[ast.expr], bool | None]) -> bool | None:
    """Return the value of a condition.

    Args:
        test: the condition.
        of_part: returns the value of a part that is no `not`, `and` or `or`.
    """
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = truth(operand, of_part)
            return None if inner is None else not inner
        case ast.BoolOp(op=op, values=values):
            return of_several((_of_value(value, of_part) for value in values), isinstance(op, ast.Or))
        case ast.Call(func=ast.Name(id="bool"), args=[value]):
            return truth(value, of_part)
    return of_part(test)


def _of_value(test: ast.expr, of_part: Callable[[ast.expr], bool | None]) -> bool | None:
    """Return the value of one side of an `and` or `or`, which may compare literals: `1 < 2`."""
    match test:
        case ast.Compare(
            left=ast.Constant(value=int(left)), ops=[op], comparators=[ast.Constant(value=int(right))]
        ) if type(op) in ORDERS:
            return ORDERS[type(op)](left, right)
    return truth(test, of_part)


def of_several(values: Iterable[bool | None], decisive: bool) -> bool | None:
    """Return the value of `or`, or of `and`: it is the decisive one if any of the values is that."""
    found = set()
    for value in values:
        if value is decisive:
            return decisive
        found.add(value)
    return None if None in found else not decisive


def of_truth(op: ast.cmpop, left: bool | None, right: bool) -> bool | None:
    """Return what `left op right` is for two truth values: `flag is False`."""
    if left is None or not isinstance(op, (ast.Is, ast.Eq, ast.IsNot, ast.NotEq)):
        return None
    return ORDERS[type(op)](left, right)


def of_no_gpus(op: ast.cmpop, value: int) -> bool | None:
    """Return what `n op value` is where n is 0, or None if it is the same where n is large."""
    order = ORDERS.get(type(op))
    answer = order and order(0, value)
    return answer if order is not None and answer is not order(math.inf, value) else None


def of_any_count(op: ast.cmpop, value: int) -> bool | None:
    """Return what `n op value` is for every n from 1 up, or None where that depends on n."""
    order = ORDERS.get(type(op))
    answers = {order(n, value) for n in (1, max(value, 1), math.inf)} if order is not None else set()
    return answers.pop() if len(answers) == 1 else None


def is_none(op: ast.cmpop, value: ast.expr | None) -> bool | None:
    """Return what a comparison of a value with None is, None if the value is no literal."""
    if not isinstance(value, ast.Constant) or type(op) not in ORDERS:
        return None
    return ORDERS[type(op)](value.value is None, True)
