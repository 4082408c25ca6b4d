"""The code of a finding, before and after its fix, as rows to show side by side."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import takewhile

from devicefix.files.text import Source
from devicefix.model import Finding, Replacement
from devicefix.report.excerpt import clusters

CONTEXT = 2  # lines around what changes
MOST = 40  # rows of one finding; of more, the middle is left out
NEAR = 4  # lines among which the one is looked for that another has become
ALIKE = 0.5  # how much two lines that are the same one, before and after, have in common: 0 nothing, 1 all
WIDEST = 160  # characters of a part of a line; of more, the middle is left out

_LINE_END = re.compile(r"\r\n|\r|\n")
_TOKEN = re.compile(r"\w+|\W")

# The text of a line in parts: every other one, from the second on, is marked.
Parts = list[str]
# By its length: [rows left out], [number, line], [number before, number after, the same line],
# [number before, line, number after, line], where a line that is not there has the number 0.
Row = list[int | Parts]
# The text of a file, or of the cell of a notebook with a number; None where it is not known.
Texts = Callable[[int | None], Source | None]


def rows(finding: Finding, texts: Texts) -> list[Row]:
    """What to show of a finding: its fix by itself, or its place where it has none.

    Definitions that other lines get for it are left out; they are in `definitions`.
    """
    source = texts(finding.cell)
    fixed = finding.fix.replacements if finding.fix else ()
    fixed = tuple(each for each in fixed if each.cell == finding.cell)
    last = max([finding.end_line, *(each.end_line for each in fixed)])
    if source is None or last > len(source.line_starts):  # no text, or not any more that which was looked at
        return []
    own = [each for each in fixed if not _defines(each, finding)]
    return _shortened(list(_changed(own, fixed, source) if own else _place(finding, source)))


def definitions(findings: Iterable[Finding], texts: Texts) -> list[Row]:
    """The definitions and imports that the fixes of a file rely on, each once."""
    found = {
        each: {line for line in _LINE_END.split(each.text) if line.strip()}
        for finding in findings
        for each in (finding.fix.replacements if finding.fix else ())
        if _defines(each, finding)
    }
    # Where a fix needs two of them, they are one replacement.
    parts = {one for one in found for other in found if _at(one) == _at(other) and found[one] < found[other]}
    made: list[Row] = []
    for each in sorted(found.keys() - parts, key=lambda one: (_at(one), one.text)):
        source = texts(each.cell)
        beside = (
            list(_kept(source, each.line - 1, each.line, ()))
            if source and each.line <= len(_lines(source))
            else []
        )
        added: list[Row] = [[0, [""], 0, [line]] for line in _LINE_END.split(each.text) if line.strip()]
        made += [*beside, *added] if each.column > 1 else [*added, *beside]
    return made


def _at(replacement: Replacement) -> tuple[int, int, int]:
    return replacement.cell or 0, replacement.line, replacement.column


def _defines(replacement: Replacement, finding: Finding) -> bool:
    """Whether a replacement puts lines of their own somewhere else."""
    start = (replacement.line, replacement.column)
    if start != (replacement.end_line, replacement.end_column) or "\n" not in replacement.text:
        return False
    return replacement.cell != finding.cell or not finding.line < replacement.line <= finding.end_line


def _place(finding: Finding, source: Source) -> Iterator[Row]:
    """The lines of a finding, with its place marked."""
    lines = _lines(source)
    first, last = max(finding.line - 1 - CONTEXT, 0), min(finding.end_line + CONTEXT, len(lines))
    for number, line in enumerate(lines[first:last], first + 1):
        inside = finding.line <= number <= finding.end_line
        start = finding.column - 1 if number == finding.line else len(line) - len(line.lstrip())
        end = finding.end_column - 1 if number == finding.end_line else len(line)
        yield [number, [line[:start], line[start:end], line[end:]] if inside else [line]]


def _changed(own: Sequence[Replacement], fixed: Sequence[Replacement], source: Source) -> Iterator[Row]:
    """The lines that replacements change, and some around them."""
    lines = _lines(source)
    shown = 0
    for together in clusters(own, CONTEXT):
        first, last = together[0].line - 1, max(each.end_line for each in together)
        start, end = max(first - CONTEXT, shown), min(last + CONTEXT, len(lines))
        if shown and start > shown:
            yield [start - shown]
        yield from _kept(source, start, first, fixed)
        after = _LINE_END.split(_replaced(source, first, last, together))
        yield from _compared(lines[first:last], after, first, first + _shift(first + 1, fixed))
        yield from _kept(source, last, end, fixed)
        shown = end


def _shift(line: int, replacements: Iterable[Replacement]) -> int:
    """How many lines further down a line is after replacements."""
    return sum(
        len(_LINE_END.findall(each.text)) - (each.end_line - each.line)
        for each in replacements
        if (each.end_line, each.end_column) <= (line, 1)
    )


def _replaced(source: Source, first: int, last: int, replacements: Iterable[Replacement]) -> str:
    """Some lines with replacements made."""
    starts = source.line_starts
    at, pieces = starts[first], []
    for each in replacements:
        pieces += [source.text[at : starts[each.line - 1] + each.column - 1], each.text]
        at = starts[each.end_line - 1] + each.end_column - 1
    return "".join([*pieces, source.text[at : source.line_end(starts[last - 1])]])


def _compared(before: list[str], after: list[str], old: int, new: int) -> Iterator[Row]:
    """Lines beside those that become of them; `old` and `new` are how many lines are above."""
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            for at in range(a, b):
                yield [old + at + 1, new + c + at - a + 1, [before[at]]]
            continue
        for left, right in _paired(before[a:b], after[c:d]):
            one = None if left is None else before[a + left]
            other = None if right is None else after[c + right]
            marked = _marked(one, other)
            yield [
                0 if left is None else old + a + left + 1,
                marked[0],
                0 if right is None else new + c + right + 1,
                marked[1],
            ]


def _paired(before: list[str], after: list[str]) -> Iterator[tuple[int | None, int | None]]:
    """Which line has become which: one by one if they are as many, or else the first that is like it."""
    if len(before) == len(after):
        yield from zip(range(len(before)), range(len(after)), strict=True)
        return
    done = 0
    for at, line in enumerate(before):
        near = range(done, min(done + NEAR, len(after)))
        other = next((each for each in near if _like(line.strip(), after[each].strip())), None)
        if other is not None:
            yield from ((None, each) for each in range(done, other))
            done = other + 1
        yield at, other
    yield from ((None, each) for each in range(done, len(after)))


def _like(one: str, other: str) -> bool:
    return one == other or SequenceMatcher(None, one, other, autojunk=False).ratio() > ALIKE


def _marked(before: str | None, after: str | None) -> tuple[Parts, Parts]:
    """Two lines with the parts marked in which they differ."""
    if before is None or after is None:
        return [before or ""], [after or ""]
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    start = _alike(old, new)
    end = _alike(old[start:][::-1], new[start:][::-1])
    left, right = ["".join(old[:start])], ["".join(new[:start])]
    for same, one, other in _pieces(old[start : len(old) - end], new[start : len(new) - end]):
        for parts, text in ((left, one), (right, other)):
            if same == bool(len(parts) % 2):
                parts[-1] += text
            else:
                parts.append(text)
    for parts in (left, right):
        if len(parts) % 2 == 0:
            parts.append("")
        parts[-1] += "".join(old[len(old) - end :])
    return left, right


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many items two lists begin with that are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _pieces(old: list[str], new: list[str]) -> Iterator[tuple[bool, str, str]]:
    """What two lists of tokens share and what not; that they share a bracket or a space is not told."""
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        one, other = "".join(old[a:b]), "".join(new[c:d])
        yield kind == "equal" and any(map(str.isalnum, one)), one, other


def _kept(source: Source, start: int, end: int, fixed: Sequence[Replacement]) -> Iterator[Row]:
    """Lines that stay as they are, between replacements."""
    lines = _lines(source)
    return ([at + 1, at + 1 + _shift(at + 1, fixed), [lines[at]]] for at in range(start, end))


@lru_cache(maxsize=1)
def _lines(source: Source) -> list[str]:
    *lines, rest = _LINE_END.split(source.text)
    return [*lines, rest] if rest else lines


def _shortened(found: list[Row]) -> list[Row]:
    """As much as can be shown: neither endless nor too wide."""
    if len(found) > MOST:
        found = [*found[: MOST // 2], [len(found) - MOST], *found[-MOST // 2 :]]
    return [
        [[_short(part) for part in field] if isinstance(field, list) else field for field in row]
        for row in found
    ]


def _short(text: str) -> str:
    half = WIDEST // 2
    return text if len(text) <= WIDEST else f"{text[:half]} … {text[-half:]}"
