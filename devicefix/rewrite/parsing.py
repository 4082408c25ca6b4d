"""LibCST's parser, for the expression or the statement that changes."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst as cst

_MAX_DEPTH = 300  # LibCST's parser overflows the stack, which ends the process, somewhere above 2,000
_LEVEL = re.compile(r"[^\w\s]|\b(?:and|or|not|if|lambda|await|yield)\b")  # each level needs one of these


def parse_module(text: str) -> cst.Module:
    """Parse the text of a module.

    Raises:
        RecursionError: It is nested so deeply that LibCST could end the process.
    """
    import libcst as cst

    if may_be_too_deep(text) and _is_too_deep(ast.parse(text)):
        raise RecursionError("nested too deeply for LibCST")
    try:
        return cst.parse_module(text)
    except cst.ParserSyntaxError as problem:
        if len(text) <= _MAX_DEPTH:
            raise
        raise RecursionError from problem  # thousands of strings in a row


def parse_expression(text: str) -> cst.BaseExpression:
    """Parse an expression, which may span lines.

    Raises:
        RecursionError: It is nested so deeply that LibCST could end the process.
    """
    import libcst as cst

    line = cst.ensure_type(parse_module(text.join(brackets(text))).body[0], cst.SimpleStatementLine)
    expression = cst.ensure_type(line.body[0], cst.Expr).value
    if any(brackets(text)):
        expression = expression.with_changes(lpar=expression.lpar[1:], rpar=expression.rpar[:-1])
    return expression


def brackets(text: str) -> tuple[str, str]:
    """Return the brackets in which an expression may be parsed as a statement; Python allows 200 at most."""
    return ("(", ")") if any(mark in text for mark in ("\n", "\r", ":=")) else ("", "")


def may_be_too_deep(text: str) -> bool:
    """Return whether a text is long enough to be nested too deeply for LibCST."""
    return len(text) > _MAX_DEPTH and len(_LEVEL.findall(text)) > _MAX_DEPTH


def _is_too_deep(module: ast.Module) -> bool:
    """Return whether a module is nested too deeply for LibCST. Each `and` is a level."""
    heights: dict[ast.AST, int] = {}
    for node in reversed(list(ast.walk(module))):
        inside = max(map(heights.__getitem__, ast.iter_child_nodes(node)), default=0)
        heights[node] = inside + (len(node.values) if isinstance(node, ast.BoolOp) else 1)
        if isinstance(node, ast.expr) and heights[node] > _MAX_DEPTH:
            return True
    return False


def comments_in(node: cst.CSTNode) -> list[cst.Comment]:
    """Return the comments inside a node, in order."""
    import libcst as cst

    found: list[cst.Comment] = []
    todo: list[cst.CSTNode] = [node]
    while todo:
        node = todo.pop()
        if isinstance(node, cst.Comment):
            found.append(node)
        todo += reversed(node.children)
    return found
