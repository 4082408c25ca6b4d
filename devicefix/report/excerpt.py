"""What to show of a file: the lines of a finding, and what a fix makes of its lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

from devicefix.model import Replacement
from devicefix.report.checked import LINE_END

CONTEXT = 1  # lines around what a fix changes, as ruff shows them
WIDEST = 160  # characters of a line that are shown

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


class Row(NamedTuple):
    """A line of a difference.

    Attributes:
        sign: `+`, `-`, or a space for a line that stays.
        number: that of the line in the new text, 0 for a line that is no more.
        parts: its text in parts, every other one of which, from the second on, differs.
    """

    sign: str
    number: int
    parts: list[str]


def hunks(lines: list[str], replacements: Iterable[Replacement]) -> Iterator[list[Row]]:
    """What becomes of lines, in groups of rows that stand together.

    Args:
        lines: the text before.
        replacements: what is replaced in it; what is outside of it is left out.
    """
    inside = [each for each in replacements if each.end_line <= len(lines)]
    shift = 0
    for together in clusters(inside, CONTEXT):
        first = max(together[0].line - 1 - CONTEXT, 0)
        last = min(max(each.end_line for each in together) + CONTEXT, len(lines))
        before = lines[first:last]
        after = LINE_END.split(_replaced(lines, first, last, together))
        rows = list(_near_changes(_compared(before, after, first + shift)))
        if last == len(lines) and rows and rows[-1][::2] == (" ", [""]):
            rows.pop()  # what is behind the last line end is no line
        yield rows
        shift += len(after) - len(before)


def shortened(text: str) -> str:
    """A text with its middle left out if it is too long to show."""
    half = WIDEST // 2
    return text if len(text) <= WIDEST else f"{text[:half]} … {text[-half:]}"


def clusters(replacements: Iterable[Replacement], context: int) -> Iterator[list[Replacement]]:
    """Replacements in order, those together that so many lines around each would join."""
    together: list[Replacement] = []
    for each in sorted(replacements, key=lambda each: (each.line, each.column)):
        if together and each.line > max(one.end_line for one in together) + 2 * context:
            yield together
            together = []
        together.append(each)
    if together:
        yield together


def _replaced(lines: list[str], first: int, last: int, replacements: Iterable[Replacement]) -> str:
    """Some of the lines with replacements made."""
    pieces = []
    line, column = first, 0
    for each in replacements:
        pieces += [_between(lines, (line, column), (each.line - 1, each.column - 1)), each.text]
        line, column = each.end_line - 1, each.end_column - 1
    return "".join([*pieces, _between(lines, (line, column), (last - 1, len(lines[last - 1])))])


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """The text from one line and column to another."""
    if start[0] == end[0]:
        return lines[start[0]][start[1] : end[1]]
    return "\n".join([lines[start[0]][start[1] :], *lines[start[0] + 1 : end[0]], lines[end[0]][: end[1]]])


def _compared(before: list[str], after: list[str], above: int) -> Iterator[Row]:
    """Lines, and what becomes of them; `above` is how many there are above in the new text."""
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from (Row(" ", above + at + 1, [after[at]]) for at in range(c, d))
            continue
        old, new = [[line] for line in before[a:b]], [[line] for line in after[c:d]]
        if len(old) == len(new):
            pairs = [_marked(one[0], other[0]) for one, other in zip(old, new, strict=True)]
            old, new = [one for one, _ in pairs], [other for _, other in pairs]
        yield from (Row("-", 0, parts) for parts in old)
        yield from (Row("+", above + at + 1, parts) for at, parts in enumerate(new, c))


def _marked(before: str, after: str) -> tuple[list[str], list[str]]:
    """Two lines in parts, where every other part differs."""
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    left, right = [""], [""]
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for parts, text in ((left, "".join(old[a:b])), (right, "".join(new[c:d]))):
            if (kind == "equal") == bool(len(parts) % 2):
                parts[-1] += text
            else:
                parts.append(text)
    return left, right


def _near_changes(rows: Iterator[Row]) -> Iterator[Row]:
    """The rows that change, and as many around them as are shown."""
    found = list(rows)
    changed = [at for at, row in enumerate(found) if row.sign != " "]
    for at, row in enumerate(found):
        if any(abs(at - other) <= CONTEXT for other in changed):
            yield row
