"""Proves of a rewritten text that it is the old one, token for token, outside of the fixed statements.

How the new text was made is not trusted: all that is known are the two texts and the places of the edits.

Whole files are not tokenized, which would take longer than everything else together. Where a logical line
begins, a tokenizer knows nothing of what was before but the blocks that are open, and in the same state the
same characters make the same tokens. So it is enough that

- the lines of the old text that hold no statement with an edit are in the new text, in their order, and
  between them only what those statements have become (a region);
- regions, which alone are tokenized, begin and end with a logical line in both texts: no edit opens a string
  or a bracket, or ends in a backslash, that swallows what is behind it;
- a region begins as deep as it did, reaches no block further out than what follows it, and leaves the same
  blocks open behind it;
- what stands in it before its first edit and behind its last is the same in characters and in tokens, and
  what stands between two edits in tokens, so that no edit ends in a comment that swallows what is behind it.

That logical lines of the old text begin where its statements do is known from its syntax tree.
"""

from __future__ import annotations

import ast
import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from devicefix.files.text import parse
from devicefix.model import SelfCheckError

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_NO_CODE = re.compile(r"[ \t\f]*(?:#|[\r\n]|\Z)")
_INDENTATION = (tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_LINE_ENDS = (tokenize.NEWLINE, tokenize.NL)
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")

Span = tuple[int, int]
Token = tuple[int, str]


def check(before: str, module: ast.Module, after: str, edits: Iterable[Span]) -> None:
    """Compare a rewritten text with the original.

    Args:
        before: the original.
        module: its syntax tree.
        after: what has become of it.
        edits: the spans of the original that were to be replaced; an insertion is an empty one.

    Raises:
        SelfCheckError: the new text does not parse, or differs from the original where it must not.
    """
    try:
        parse(after)
    except (SyntaxError, ValueError) as problem:
        raise SelfCheckError(f"would not parse: {problem}") from problem
    old, new = _Text(before), _Text(after)
    regions = _regions(old, module, edits)
    at = regions[0].first if regions else len(old.lines)
    if old.lines[:at] != new.lines[:at] or (not regions and len(new.lines) > at):
        raise SelfCheckError("differs before the first fix")
    for region, following in pairwise([*regions, None]):
        assert region is not None
        at = _behind(old, new, at, region, following)


@dataclass(slots=True)
class _Lines:
    """Some logical lines: those from `first` up to `end` as they stand in the text.

    `tokens` have a type, a text, a start and an end, and are not those of indentation. `widths` tell how deep
    the logical lines with code are indented. `spans` are those of the edits, in the old text.
    """

    first: int
    end: int
    tokens: list[tuple[int, str, int, int]] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)


class _Text:
    """A text and its lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines: list[str] = _LINE.findall(text)
        self.starts = [0, *accumulate(map(len, self.lines))]

    def line(self, offset: int) -> int:
        """The line of an offset; at the end of the text the one behind the last, if that has ended."""
        line = bisect_right(self.starts, offset) - 1
        whole = line < len(self.lines) or self.text.endswith(("\r", "\n"))
        return line if whole else max(line - 1, 0)

    def head(self, region: _Lines) -> str:
        """What stands before the first edit of a region."""
        return self.text[self.starts[region.first] : region.spans[0][0]]

    def read(self, lines: _Lines) -> None:
        """Add the next logical line, comment or blank line to some lines."""
        at = lines.end
        rest = (self.lines[each].rstrip("\r\n") + "\n" for each in range(at, len(self.lines)))
        code = False
        try:
            for kind, text, (row, column), (last, end), _ in tokenize.generate_tokens(rest.__next__):
                if kind in _INDENTATION:
                    continue
                start, stop = self.starts[at + row - 1] + column, self.starts[at + last - 1] + end
                lines.tokens.append((kind, text, start, stop))
                code = code or kind not in (tokenize.COMMENT, tokenize.NL)
                if kind == tokenize.NEWLINE or (kind == tokenize.NL and not code):
                    lines.end = at + row
                    break
            else:
                lines.end = len(self.lines)
        except (tokenize.TokenError, SyntaxError) as problem:
            raise SelfCheckError(f"does not end what line {at + 1} begins: {problem}") from problem
        if code:
            lines.widths.append(_width(self.lines[at]))

    def next_width(self, at: int) -> int:
        """How deep the next code is indented, from a line on that begins a logical one."""
        rest = (self.lines[each] for each in range(at, len(self.lines)))
        return _width(next((line for line in rest if not _NO_CODE.match(line)), ""))


def _width(line: str) -> int:
    indentation = line[: len(line) - len(line.lstrip(" \t\f"))]
    return len(indentation.rpartition("\f")[2].expandtabs(8))


# -- where the edits are -------------------------------------------------------------------------------


def _regions(old: _Text, module: ast.Module, edits: Iterable[Span]) -> list[_Lines]:
    """The logical lines with edits; neighbours are one region if they are in the same block."""
    begins = sorted({0, *_begins(old, module)})
    regions: list[_Lines] = []
    for span in _outermost(edits):
        first, last = map(old.line, span)
        if span[0] < span[1] == old.starts[last]:
            last -= 1  # whole lines
        if not regions or regions[-1].end <= first:
            known = regions[-1].end if regions else 0
            region = _logical_line(old, max(begins[bisect_right(begins, first) - 1], known), first)
            if regions and regions[-1].end == region.first and regions[-1].widths[:1] == region.widths:
                regions[-1].tokens += region.tokens
                regions[-1].widths += region.widths
                regions[-1].end = region.end
            else:
                regions.append(region)
        while regions[-1].end <= last and regions[-1].end < len(old.lines):
            old.read(regions[-1])
        regions[-1].spans.append(span)
    return regions


def _begins(old: _Text, module: ast.Module) -> Iterator[int]:
    """Lines that begin a logical line, since a statement is the first thing on them."""
    todo: list[ast.AST] = [module]
    while todo:
        node = todo.pop()
        todo += (each for block in _BLOCKS for each in getattr(node, block, ()))
        if isinstance(node, (ast.stmt, ast.ExceptHandler)):
            at = node.lineno - 1
            if not old.lines[at][: node.col_offset].strip(" \t\f"):
                if at == 0 or not old.lines[at - 1].rstrip("\r\n").endswith("\\"):
                    yield at


def _outermost(edits: Iterable[Span]) -> list[Span]:
    spans: list[Span] = []
    for start, end in sorted(edits, key=lambda span: (span[0], -span[1])):
        if not spans or spans[-1][1] <= start:
            spans.append((start, end))
        else:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
    return spans


def _logical_line(text: _Text, begin: int, line: int) -> _Lines:
    """The logical line that holds a line, read from one on that begins a logical line."""
    while True:
        found = _Lines(begin, begin)
        if begin < len(text.lines):
            text.read(found)
        if found.end > line or found.end >= len(text.lines):
            return found
        begin = found.end


# -- what has become of a region -----------------------------------------------------------------------


def _behind(old: _Text, new: _Text, at: int, region: _Lines, following: _Lines | None) -> int:
    """The line of the new text where the next region begins: what is left and right of it has been found."""
    kept = old.lines[region.end : following.first if following else len(old.lines)]
    found = _Lines(at, at)
    while not (
        (not kept or new.lines[found.end : found.end + 1] == kept[:1])
        and (following or len(new.lines) == found.end + len(kept))
        and new.lines[found.end : found.end + len(kept) if following else None] == kept
        and (not following or _begins_there(old, new, found.end + len(kept), following))
        and _same_tokens(old, new, region, found)
        and _same_blocks(old, new, region, found, following)
    ):
        if found.end >= len(new.lines):
            raise SelfCheckError(f"differs outside of what is fixed in line {region.first + 1}")
        new.read(found)
    return found.end + len(kept)


def _begins_there(old: _Text, new: _Text, at: int, region: _Lines) -> bool:
    """Whether what stands before the first edit of a region does so from a line of the new text on."""
    head, start = old.head(region), new.starts[at]
    deeper = head.isspace() and new.text[start + len(head) : start + len(head) + 1] in (" ", "\t")
    return new.text.startswith(head, start) and not deeper


def _same_tokens(old: _Text, new: _Text, region: _Lines, found: _Lines) -> bool:
    """Whether what stands around the edits of a region is the same."""
    text = new.text[new.starts[found.first] : new.starts[found.end]]
    head, tail = old.head(region), old.text[region.spans[-1][1] : old.starts[region.end]]
    if len(text) < len(head) + len(tail) or not (text.startswith(head) and text.endswith(tail)):
        return False
    tokens = [(kind, string) for kind, string, _, _ in found.tokens if kind not in _LINE_ENDS]
    first, *middle = _runs(region)
    last = middle.pop()
    end = len(tokens) - len(last)
    if end < len(first) or tokens[: len(first)] != first or tokens[end:] != last:
        return False
    at = len(first)
    for run in middle:
        places = (place for place in range(at, end - len(run) + 1) if tokens[place : place + len(run)] == run)
        place = next(places, None)
        if place is None:
            return False
        at = place + len(run)
    return True


def _runs(region: _Lines) -> list[list[Token]]:
    """The tokens before, between and behind the edits of a region, less line ends.

    The end of a statement may have become that of a blank line behind an inserted one.
    """
    stops = [start for start, _ in region.spans]
    ends = [end for _, end in region.spans]
    runs: list[list[Token]] = [[] for _ in range(len(stops) + 1)]
    for kind, string, start, end in region.tokens:
        run = bisect_right(ends, start)
        if kind not in _LINE_ENDS and (run == len(stops) or end <= stops[run]):
            runs[run].append((kind, string))
    return runs


def _same_blocks(old: _Text, new: _Text, region: _Lines, found: _Lines, following: _Lines | None) -> bool:
    """Whether a region stands in the block where it stood, and what is behind it, too."""
    deep, next_deep = new.next_width(found.end), old.next_width(region.end)
    if deep != next_deep and (following is None or deep != old.next_width(following.end)):
        return False  # the next region may be gone, but not moved
    before = region.widths or [next_deep]
    after = found.widths
    if not after:
        return deep <= min(before)
    floor = max(min(before), min(after))
    same = _open(before, floor, deep) == _open(after, floor, deep)
    return same and after[0] == before[0] and min(after) >= min(*before, next_deep)


def _open(widths: list[int], floor: int, deep: int) -> list[int]:
    """The blocks deeper than `floor` that logical lines leave open for code that is so deep."""
    blocks: list[int] = []
    for width in [*widths, deep]:
        while blocks and blocks[-1] > width:
            blocks.pop()
        if not blocks or blocks[-1] < width:
            blocks.append(width)
    return [block for block in blocks if floor < block < deep]
