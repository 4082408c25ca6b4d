"""The code of a finding before and after its fix, as rows to show side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from devicefix.files.differences import Differences
from devicefix.files.text import LINE_END
from devicefix.model import Finding, Replacement
from devicefix.report import changes

CONTEXT = 2  # unchanged lines around a change
MAX_ROWS = 40  # of one finding

# The length of a row is its kind: [number of rows left out], [number, line], [number before, number after,
# unchanged line], [number before, line, number after, line]. A missing line has the number 0.
Row = list[int | changes.Parts]
# Returns the lines of a file, or of the notebook cell with a number.
Lines = Callable[[int | None], Sequence[str]]


def rows(finding: Finding, lines_of: Lines) -> list[Row]:
    """Return the rows of a finding: its fix, or its place if it has no fix.

    Definitions that the fix adds elsewhere are left out; `definitions` returns them.

    Args:
        finding: the finding, whose fix holds replacements.
        lines_of: returns the text; it may have changed since the finding was made.
    """
    lines = lines_of(finding.cell)
    replacements = finding.fix.replacements if finding.fix else ()
    replacements = tuple(replacement for replacement in replacements if replacement.cell == finding.cell)
    last = max([finding.end_line, *(replacement.end_line for replacement in replacements)])
    if last > len(lines):
        return []
    own = [replacement for replacement in replacements if not _is_definition(replacement, finding)]
    found = _changed(own, replacements, lines) if own else _place(finding, lines)
    return _limited(list(found))


def definitions(findings: Iterable[Finding], lines_of: Lines) -> list[Row]:
    """Return the definitions and imports that the fixes of a file add, each one once.

    Args:
        findings: the findings of the file, whose fixes hold replacements.
        lines_of: returns the text.
    """
    fixed = ((finding, finding.fix.replacements) for finding in findings if finding.fix)
    inserted = {each for finding, edits in fixed for each in edits if _is_definition(each, finding)}
    found = {each: {line for line in LINE_END.split(each.text) if line.strip()} for each in inserted}
    # A fix that needs two of them has both in one replacement.
    pairs = ((one, other) for one in found for other in found if _position(one) == _position(other))
    contained = {one for one, other in pairs if found[one] < found[other]}
    made: list[Row] = []
    for replacement in sorted(found.keys() - contained, key=lambda edit: (_position(edit), edit.text)):
        lines = lines_of(replacement.cell)
        number = replacement.line
        unchanged: list[Row] = []
        if number <= _line_count(lines):
            unchanged.append([number, number, [lines[number - 1]]])
        added: list[Row] = [[0, [""], 0, [line]] for line in LINE_END.split(replacement.text) if line.strip()]
        made += [*unchanged, *added] if replacement.column > 1 else [*added, *unchanged]
    return made


def _position(replacement: Replacement) -> tuple[int, int, int]:
    return replacement.cell or 0, replacement.line, replacement.column


def _is_definition(replacement: Replacement, finding: Finding) -> bool:
    """Return whether a replacement only inserts lines, outside the finding."""
    start = (replacement.line, replacement.column)
    if start != (replacement.end_line, replacement.end_column) or "\n" not in replacement.text:
        return False
    if replacement.text.isspace():  # a line break inside a statement
        return False
    return replacement.cell != finding.cell or not finding.line < replacement.line <= finding.end_line


def _line_count(lines: Sequence[str]) -> int:
    """Return the number of lines, without the empty text after the last line end."""
    return len(lines) - (not lines[-1])


def _place(finding: Finding, lines: Sequence[str]) -> Iterator[Row]:
    """Yield the lines of a finding and their context, with the finding marked."""
    first = max(finding.line - 1 - CONTEXT, 0)
    last = min(finding.end_line + CONTEXT, _line_count(lines))
    for number, line in enumerate(lines[first:last], first + 1):
        yield [number, changes.mark_finding(line, number, finding)]


def _changed(
    own: Sequence[Replacement], replacements: Sequence[Replacement], lines: Sequence[str]
) -> Iterator[Row]:
    """Yield the lines that a finding's own replacements change, and their context."""
    total = _line_count(lines)
    shown = 0
    for group in changes.grouped(own, CONTEXT):
        first, last = group[0].line - 1, max(replacement.end_line for replacement in group)
        start, end = max(first - CONTEXT, shown), min(last + CONTEXT, total)
        if shown and start > shown:
            yield [start - shown]
        yield from _unchanged(lines, start, first, replacements)
        after = changes.replaced(lines, first, last, group)
        before = lines[first : min(last, total)]
        yield from _compared(before, after, first, first + _shift(first + 1, replacements))
        yield from _unchanged(lines, last, end, replacements)
        shown = end


def _shift(line: int, replacements: Iterable[Replacement]) -> int:
    """Return by how many lines replacements move a line down."""
    above = (each for each in replacements if (each.end_line, each.end_column) <= (line, 1))
    return sum(len(LINE_END.findall(each.text)) - (each.end_line - each.line) for each in above)


def _unchanged(
    lines: Sequence[str], start: int, end: int, replacements: Sequence[Replacement]
) -> Iterator[Row]:
    """Yield the lines with these indices, which stay the same."""
    for number in range(start + 1, end + 1):
        yield [number, number + _shift(number, replacements), [lines[number - 1]]]


def _compared(before: Sequence[str], after: list[str], old: int, new: int) -> Iterator[Row]:
    """Yield lines next to what they become; `old` and `new` are the numbers of lines above them."""
    for kind, a, b, c, d in Differences(before, after).get_opcodes():
        if kind == "equal":
            for index in range(a, b):
                yield [old + index + 1, new + c + index - a + 1, [before[index]]]
            continue
        for left, right in changes.paired(before[a:b], after[c:d]):
            one = None if left is None else before[a + left]
            other = None if right is None else after[c + right]
            marked = ([one or ""], [other or ""])
            if one is not None and other is not None:
                marked = changes.mark_differences(one, other)
            before_number = 0 if left is None else old + a + left + 1
            after_number = 0 if right is None else new + c + right + 1
            yield [before_number, marked[0], after_number, marked[1]]


def _limited(found: list[Row]) -> list[Row]:
    """Return the rows without the middle of what is too long or too wide."""
    if len(found) > MAX_ROWS:
        half = MAX_ROWS // 2
        found = [*found[:half], [len(found) - MAX_ROWS], *found[-half:]]
    return [
        [[changes.shortened(part) for part in field] if isinstance(field, list) else field for field in row]
        for row in found
    ]
