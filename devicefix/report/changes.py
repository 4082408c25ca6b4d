"""Changed lines, for every layout: which changes to show together, their result, and the marked parts."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from devicefix.files.differences import Differences
from devicefix.files.text import LINE_END
from devicefix.model import Finding, Replacement

MAX_WIDTH = 160  # characters of a line, or of a part of one
SEARCH_RANGE = 4  # lines of the new text in which to search for a changed line
LONG = 1_000_000  # pairs of characters; more take too long to compare
MIN_SIMILARITY = 0.5  # of two lines that are the same line before and after, from 0 to 1

_TOKEN = re.compile(r"\w+|\W")
_WORD_AROUND = re.compile(r"\w\w")

# The text of a line in parts: every second one is marked, starting with the part at index 1.
Parts = list[str]


def shortened(text: str) -> str:
    """Return the text, without its middle if it is too long to show."""
    half = MAX_WIDTH // 2
    return text if len(text) <= MAX_WIDTH else f"{text[:half]} … {text[-half:]}"


def grouped(replacements: Iterable[Replacement], context: int) -> Iterator[list[Replacement]]:
    """Yield the replacements in order, in groups that are joined by their context.

    Args:
        replacements: the replacements of one text.
        context: the number of unchanged lines to show before and after each.
    """
    group: list[Replacement] = []
    last = 0
    for replacement in sorted(replacements, key=lambda each: (each.line, each.column)):
        if group and replacement.line > last + 2 * context:
            yield group
            group = []
        group.append(replacement)
        last = max(last, replacement.end_line)
    if group:
        yield group


def replaced(lines: Sequence[str], first: int, last: int, replacements: Iterable[Replacement]) -> list[str]:
    """Return the lines with these indices, from `first` up to `last`, after the replacements."""
    pieces = []
    line, column = first, 0
    for replacement in replacements:
        start = (replacement.line - 1, replacement.column - 1)
        pieces += [_between(lines, (line, column), start), replacement.text]
        line, column = replacement.end_line - 1, replacement.end_column - 1
    pieces.append(_between(lines, (line, column), (last - 1, len(lines[last - 1]))))
    return LINE_END.split("".join(pieces))


def _between(lines: Sequence[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return the text between two positions, each an index of a line and one of a character."""
    if start[0] == end[0]:
        return lines[start[0]][start[1] : end[1]]
    return "\n".join([lines[start[0]][start[1] :], *lines[start[0] + 1 : end[0]], lines[end[0]][: end[1]]])


def paired(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[int | None, int | None]]:
    """Yield which line becomes which, by their indices; None for no line.

    A line that only gets another indentation, since a guard is put above it, stays the same line.
    """
    stripped = [line.strip() for line in before], [line.strip() for line in after]
    for kind, a, b, c, d in Differences(*stripped).get_opcodes():
        if kind == "equal":
            yield from zip(range(a, b), range(c, d), strict=True)
            continue
        for one, other in _similar_pairs(stripped[0][a:b], stripped[1][c:d]):
            yield None if one is None else a + one, None if other is None else c + other


def _similar_pairs(before: list[str], after: list[str]) -> Iterator[tuple[int | None, int | None]]:
    """Yield which line becomes which: in order if there are as many, else the first similar one."""
    if len(before) == len(after):
        yield from zip(range(len(before)), range(len(after)), strict=True)
        return
    done = 0
    for index, line in enumerate(before):
        near = range(done, min(done + SEARCH_RANGE, len(after)))
        other = next((at for at in near if _similar(line, after[at])), None)
        if other is not None:
            yield from ((None, at) for at in range(done, other))
            done = other + 1
        yield index, other
    yield from ((None, at) for at in range(done, len(after)))


def _similar(one: str, other: str) -> bool:
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    quick = matcher.quick_ratio() > MIN_SIMILARITY
    return quick and (len(one) * len(other) > LONG or matcher.ratio() > MIN_SIMILARITY)


def mark_finding(line: str, number: int, finding: Finding) -> Parts:
    """Return the line with this number in parts, of which those inside the finding are marked."""
    if not finding.line <= number <= finding.end_line:
        return [line]
    start = finding.column - 1 if number == finding.line else len(line) - len(line.lstrip())
    end = finding.end_column - 1 if number == finding.end_line else len(line)
    return [line[:start], line[start:end], line[end:]]


def mark_differences(before: str, after: str) -> tuple[Parts, Parts]:
    """Return two lines in parts, of which those that differ are marked."""
    start = _same_tokens(before, after)
    end = _same_tokens(before[start:][::-1], after[start:][::-1])
    left, right = [before[:start]], [after[:start]]
    middle, other_middle = before[start : len(before) - end], after[start : len(after) - end]
    for equal, one, other in _compared(_TOKEN.findall(middle), _TOKEN.findall(other_middle)):
        for parts, text in ((left, one), (right, other)):
            if equal == bool(len(parts) % 2):
                parts[-1] += text
            else:
                parts.append(text)
    for parts in (left, right):
        if len(parts) % 2 == 0:
            parts.append("")
        parts[-1] += before[len(before) - end :]
    return left, right


def _same_tokens(one: str, other: str) -> int:
    """Return the length of the longest common prefix that ends between two tokens of both."""
    lengths = range(1, min(len(one), len(other)) + 1)
    length = bisect_right(lengths, False, key=lambda end: one[:end] != other[:end])
    while any(_WORD_AROUND.fullmatch(text, max(length - 1, 0), length + 1) for text in (one, other)):
        length -= 1
    return length


def _compared(old: list[str], new: list[str]) -> Iterator[tuple[bool, str, str]]:
    """Yield the parts of two lists of tokens, with whether they are equal.

    Equal punctuation and white space between different words count as different: marking around them
    makes a line hard to read.
    """
    for kind, a, b, c, d in Differences(old, new).get_opcodes():
        one, other = "".join(old[a:b]), "".join(new[c:d])
        yield kind == "equal" and any(map(str.isalnum, one)), one, other
