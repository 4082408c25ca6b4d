"""LibCST's parser, for the expression or the statement that changes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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

    if may_be_too_deep(text) and any(too_deep(ast.parse(text))):
        raise RecursionError("nested too deeply for LibCST")
    try:
        return cst.parse_module(text)
    except cst.ParserSyntaxError as problem:
        if len(text) <= _MAX_DEPTH:
            raise
        raise RecursionError from problem  # thousands of strings in a row


def parse_expression(text: str) -> tuple[cst.Module, cst.BaseExpression]:
    """Parse an expression, which may span lines.

    Returns:
        A module with the line ends of the expression, and the expression.

    Raises:
        RecursionError: It is nested so deeply that LibCST could end the process.
    """
    import libcst as cst

    module = parse_module(f"({text}\n)")  # in parentheses it may span lines
    statement = cst.ensure_type(module.body[0], cst.SimpleStatementLine)
    expression = cst.ensure_type(statement.body[0], cst.Expr).value
    return module, expression.with_changes(lpar=expression.lpar[1:], rpar=expression.rpar[:-1])


def may_be_too_deep(text: str) -> bool:
    """Return whether a text is long enough to be nested too deeply for LibCST."""
    return len(text) > _MAX_DEPTH and len(_LEVEL.findall(text)) > _MAX_DEPTH


def too_deep(module: ast.Module) -> Iterator[ast.expr]:
    """Yield the expressions of a module that are nested too deeply for LibCST. Each `and` is a level."""
    nodes = list(ast.walk(module))
    heights: dict[ast.AST, int] = {}
    for node in reversed(nodes):
        inside = max(map(heights.__getitem__, ast.iter_child_nodes(node)), default=0)
        heights[node] = inside + (len(node.values) if isinstance(node, ast.BoolOp) else 1)
        if isinstance(node, ast.expr) and heights[node] > _MAX_DEPTH:
            yield node


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
