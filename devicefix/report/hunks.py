"""A fix as hunks of changed lines, as in a unified diff."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from devicefix.files.differences import Differences
from devicefix.model import Replacement
from devicefix.report.changes import Parts, grouped, mark_differences, paired, replaced
from devicefix.report.checked import File

CONTEXT = 1  # unchanged lines around a change, as in ruff's output


class Row(NamedTuple):
    """A line of a hunk.

    Attributes:
        sign: `+`, `-`, or a space for an unchanged line.
        number: the line's number in the new text, 0 for a removed line.
        parts: the line's text in parts, marked where it differs.
    """

    sign: str
    number: int
    parts: Parts


def by_cell(file: File, replacements: Sequence[Replacement]) -> dict[int | None, list[list[Row]]]:
    """Return the hunks of a fix by the cell of a notebook, or by None."""
    cells = sorted({replacement.cell for replacement in replacements}, key=lambda cell: cell or 0)
    by_cell = {cell: [each for each in replacements if each.cell == cell] for cell in cells}
    return {cell: list(hunks(file.lines(cell), each)) for cell, each in by_cell.items()}


def hunks(lines: list[str], replacements: Iterable[Replacement]) -> Iterator[list[Row]]:
    """Yield the hunks that replacements make of a text.

    Args:
        lines: the text before; it may be shorter than when the replacements were made.
        replacements: the changes; those outside the text are ignored.
    """
    inside = [replacement for replacement in replacements if replacement.end_line <= len(lines)]
    shift = 0
    for group in grouped(inside, CONTEXT):
        first = max(group[0].line - 1 - CONTEXT, 0)
        last = min(max(replacement.end_line for replacement in group) + CONTEXT, len(lines))
        before = lines[first:last]
        after = replaced(lines, first, last, group)
        rows = _near_changes(list(_compared(before, after, first + shift)))
        if last == len(lines) and rows and rows[-1][::2] == (" ", [""]):
            rows.pop()  # the empty text after the last line end
        yield rows
        shift += len(after) - len(before)


def _compared(before: list[str], after: list[str], offset: int) -> Iterator[Row]:
    """Yield all lines, removed ones first; `offset` is the number of lines above in the new text."""
    for kind, a, b, c, d in Differences(before, after).get_opcodes():
        if kind == "equal":
            yield from (Row(" ", offset + index + 1, [after[index]]) for index in range(c, d))
            continue
        old, new = [[line] for line in before[a:b]], [[line] for line in after[c:d]]
        for one, other in paired(before[a:b], after[c:d]):
            if one is not None and other is not None:
                old[one], new[other] = mark_differences(before[a + one], after[c + other])
        yield from (Row("-", 0, parts) for parts in old)
        yield from (Row("+", offset + index + 1, parts) for index, parts in enumerate(new, c))


def _near_changes(rows: list[Row]) -> list[Row]:
    """Return the changed rows and their context."""
    changed = (index for index, row in enumerate(rows) if row.sign != " ")
    near = {index + step for index in changed for step in range(-CONTEXT, CONTEXT + 1)}
    return [row for index, row in enumerate(rows) if index in near]
