"""Code that runs rewritten but speaks of the lines in the user's file: in tracebacks, and to `inspect`."""

from __future__ import annotations

import ast
from difflib import SequenceMatcher

_PLACED = (ast.stmt, ast.expr, ast.arg, ast.keyword, ast.alias, ast.excepthandler, ast.pattern)


def origins(old: list[str], new: list[str]) -> list[int]:
    """Where the lines of a rewritten text come from.

    Args:
        old: the lines of the user's file.
        new: the lines of the rewritten text.

    Returns:
        For each line of `new`, the number (from 1) of a line of `old`; numbers never fall. A line that has
        been put in belongs to the one that follows it.
    """
    before, after = ([line.strip() for line in lines] for lines in (old, new))
    matcher = SequenceMatcher(lambda line: not line, before, after, autojunk=False)
    found: list[int] = []
    for _, start, end, new_start, new_end in matcher.get_opcodes():
        last = max(end - 1, start)
        found += [min(start + index, last, max(len(old) - 1, 0)) + 1 for index in range(new_end - new_start)]
    return found


def restore(tree: ast.Module, lines: list[int], old: list[str], new: list[str]) -> None:
    """Give the nodes of a rewritten module the positions that they have in the user's file.

    A node on a line that was changed gets the whole line, so that a traceback does not underline the wrong
    half of it.

    Args:
        tree: the tree of the rewritten text; changed in place.
        lines: where its lines come from, as `origins` has it.
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
