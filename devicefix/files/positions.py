"""Map findings from extracted code to the notebook or document that holds it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from devicefix.files.text import LINE_END
from devicefix.model import Finding, Replacement, Result

# The lines that a message names; those after a comma are lines of another file.
_LINES = re.compile(r"(?<!, )\blines? \d+\b(?:, \d+\b)*(?: and \d+\b(?! more))?")
_NUMBER = re.compile(r"\d+")


class Place(NamedTuple):
    """A line and a column, from 1, in a file or in a notebook's cell."""

    line: int
    column: int
    cell: int | None = None


Where = Callable[[int, int], Place]
Respell = Callable[[str], str]


class Lines:
    """The lines of a text, as `Source` counts them."""

    def __init__(self, text: str) -> None:
        self.starts = [0, *(match.end() for match in LINE_END.finditer(text))]

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a line and a column."""
        return self.starts[min(line, len(self.starts)) - 1] + column - 1

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of an offset."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1


def moved(result: Result, old: Where, new: Where, respell: Respell) -> tuple[list[Finding], list[Finding]]:
    """Return a module's findings at their places in the document, and those of them that are fixed.

    Args:
        result: the result for the module.
        old: maps a place in the module to its place in the document.
        new: maps a place in the changed module to its place in the changed document.
        respell: returns a replacement's text as the document spells it.
    """
    fixed = [moved_finding(finding, old, respell) for finding in result.fixed]
    return fixed + [moved_finding(finding, new, respell) for finding in result.remaining], fixed


def moved_finding(finding: Finding, where: Where, respell: Respell) -> Finding:
    """Return a finding at its place in another text; see `moved`."""
    start = where(finding.line, finding.column)
    end = where(finding.end_line, finding.end_column)
    fix = finding.fix
    if fix and fix.replacements:
        parts = tuple(_moved_replacement(replacement, where, respell) for replacement in fix.replacements)
        fix = replace(fix, replacements=parts)
    message = _with_lines_moved(finding.message, where, start.cell)
    places = start.line, start.column, end.line, end.column
    return Finding(finding.code, message, *places, fix=fix, cell=start.cell)


def _moved_replacement(replacement: Replacement, where: Where, respell: Respell) -> Replacement:
    start = where(replacement.line, replacement.column)
    end = where(replacement.end_line, replacement.end_column)
    return Replacement(start.line, start.column, end.line, end.column, respell(replacement.text), start.cell)


def _with_lines_moved(message: str, where: Where, cell: int | None) -> str:
    """Return a message with line numbers of the document; code in backticks is not changed."""

    def moved_line(match: re.Match[str]) -> str:
        there = where(int(match[0]), 1)
        return str(there.line) + ("" if there.cell == cell else f" of cell {there.cell}")

    parts = message.split("`")
    parts[::2] = (_LINES.sub(lambda each: _NUMBER.sub(moved_line, each[0]), part) for part in parts[::2])
    return "`".join(parts)
