"""Line numbers of rewritten code, so that tracebacks and `inspect` show the lines of the user's file."""

from __future__ import annotations

import ast

_PLACED = (ast.stmt, ast.expr, ast.arg, ast.keyword, ast.alias, ast.excepthandler, ast.pattern)


def restore(tree: ast.Module, lines: list[int], old: list[str], new: list[str]) -> None:
    """Set the positions of a rewritten module's nodes to those in the user's file.

    A node on a changed line gets the whole line, so that a traceback does not underline the wrong part.

    Args:
        tree: the tree of the rewritten text, which is changed in place.
        lines: the line of the user's file for each new line, from 1.
        old: the lines of the user's file.
        new: the lines of the rewritten text.
    """
    same = [old[origin - 1] == line for origin, line in zip(lines, new, strict=True)]
    widths = [len(line.encode()) for line in old]
    for node in ast.walk(tree):
        if not isinstance(node, _PLACED):
            continue
        start, end = node.lineno, node.end_lineno or node.lineno
        node.lineno, node.end_lineno = lines[start - 1], lines[end - 1]
        if not same[start - 1]:
            node.col_offset = 0
        if not same[end - 1]:
            node.end_col_offset = widths[node.end_lineno - 1]
        if node.lineno == node.end_lineno:
            node.end_col_offset = max(node.end_col_offset or 0, node.col_offset)
