"""The texts of strings that literals put together."""

from __future__ import annotations

import ast
import re

UNKNOWN_PART = "\0"


def text_of(node: ast.AST, depth: int = 4) -> str | None:  # noqa: C901, PLR0911 (one case a kind of node)
    """Return the text of a string that literals put together, with `UNKNOWN_PART` for what is computed.

    Args:
        node: the expression.
        depth: how deeply the parts may nest.
    """
    if depth == 0:
        return None
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(text_of(value, depth - 1) or UNKNOWN_PART for value in values)
        case ast.FormattedValue(value=value):
            return text_of(value, depth - 1)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = text_of(left, depth - 1), text_of(right, depth - 1)
            return first and first + (UNKNOWN_PART if second is None else second)
        case ast.BinOp(left=ast.Constant(value=str(form)), op=ast.Mod(), right=right):
            values = right.elts if isinstance(right, ast.Tuple) else [right]
            return _formatted(re.split(r"%[a-z]", form), values, depth)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(form)), attr="format"), args=values):
            return _formatted(re.split(r"\{[^{}]*\}", form), values, depth)
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(separator)), attr="join"),
            args=[ast.List(elts=values) | ast.Tuple(elts=values)],
        ):
            return separator.join(text_of(value, depth - 1) or UNKNOWN_PART for value in values)
        case ast.Call(func=ast.Attribute(value=value, attr="lower" | "strip"), args=[], keywords=[]):
            inner = text_of(value, depth - 1)
            return inner and inner.lower()
        case ast.Call(func=ast.Name(id="str"), args=[value], keywords=[]):
            return text_of(value, depth - 1)
        case ast.BoolOp(op=ast.Or(), values=[ast.Constant(value=None), value]):
            return text_of(value, depth - 1)
    return None


def _formatted(pieces: list[str], values: list[ast.expr], depth: int) -> str:
    """Return the text of a form with its values between the pieces."""
    texts = [text_of(value, depth - 1) or UNKNOWN_PART for value in values]
    filled = texts if len(texts) == len(pieces) - 1 else [UNKNOWN_PART] * (len(pieces) - 1)
    return pieces[0] + "".join(value + piece for value, piece in zip(filled, pieces[1:], strict=True))
