"""Break the lines that a fix makes too long, as the file breaks its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import groupby, pairwise, takewhile

from devicefix.facts.tree import Tree
from devicefix.files.notebook.markers import MAGIC
from devicefix.files.text import Change, Source, replaced

# A line may become as long as the longest of the file, within these bounds; a short file shows no limit.
_AT_LEAST, _AT_MOST = 88, 110
_SHORT = 100  # lines
_WORTH_A_LINE = 12  # characters
_GROWN = 35  # characters: a condition that a fix adds
_MANY = 5  # lines
_WITH_VALUE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)
_STRING = re.compile(
    r"""'''(?s:.)*?'''|\"{3}(?s:.)*?\"{3}|(['"])(?:\\.|(?!\1)[^\\\r\n])*\1|(?P<comment>\#[^\r\n]*)"""
)
_PRAGMA = re.compile(r" *# *(?:noqa|nosec|type:|pyright:|pylint:|flake8:|ruff:|isort:)")
_CLOSED = re.compile(r"^[ \t]*[)\]}]+[:,]?[ \t]*\r?$", re.M)  # as formatters break lines
_OPENING, _CLOSING = "([{", ")]}"
_PARAMETERS = re.compile(r"\blambda\b[^:]*")  # of a lambda
_LOOP = re.compile(r"\bfor\b")  # may have commas that separate no elements
_SUBSCRIPT = re.compile(r"[\w)\]]\[\Z")
_Part = tuple[int, int]  # from one column to another
_Way = Callable[[int], Iterator[list[Change]]]


def wrapped(
    source: Source, tree: Tree, changes: Sequence[Change], line_length: int | None = None
) -> list[Change]:
    """Return changes, with line breaks in the lines that they make too long.

    A line that was too long before is broken only in brackets that it shares with other lines, or if it grows
    by a condition and the file has few lines as long as that. A comment behind it counts as formatters count.

    Args:
        source: The text that the changes are for.
        tree: Its syntax tree.
        changes: Changes from `resolved`.
        line_length: How long lines may be; None if the text shows it.
    """
    result: list[Change] = []
    limit = line_length or 0
    parts = [(_different(source, change), change) for change in changes]
    for number, group in groupby(parts, lambda pair: source.position(pair[0][0])[0]):
        pairs = list(group)
        start = source.line_starts[number - 1]
        end = source.line_end(start)
        while len(pairs) > 1 and _is_line_above(source, start, pairs[0][1]):
            result.append(pairs.pop(0)[1])
        found, whole = (list(each) for each in zip(*pairs, strict=True))
        more = sum(len(new) - (last - first) for first, last, new in found)
        # A line magic ends with its line.
        magic = source.text.startswith(MAGIC, start + len(source.indentation(start)))
        within = found[-1][1] <= end and not any("\n" in new or "\r" in new for *_, new in found)
        old = len(_counted(source, source.text[start:end]))
        if within and not magic and old + more > (line_length or _AT_LEAST):
            limit = limit or _limit(source)
            if limit < old + more:
                whole = _Line(source, tree, number, found).broken(limit, old)
        result += whole
    return result


def _different(source: Source, change: Change) -> Change:
    """Return a change of several lines without what it leaves as it is, if the rest is part of one line."""
    start, end, new = change
    old = source.text[start:end]
    before = _same(old, new)
    after = _same(old[before:][::-1], new[before:][::-1])
    part = (start + before, end - after, new[before : len(new) - after])
    return part if "\n" in new and "\n" not in old[before : len(old) - after] + part[2] else change


def _is_line_above(source: Source, line_start: int, change: Change) -> bool:
    """Return whether a change only inserts lines above the one that starts there."""
    start, end, new = change
    return start == end and not source.text[line_start:start].strip() and new.rstrip(" \t").endswith("\n")


def _same(text: str, other: str) -> int:
    """Return how many characters two texts have in common at their start."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, other, strict=False)))


def _limit(source: Source) -> int:
    """Return how long a line may become."""
    lines = source.text.splitlines()
    if len(lines) < _SHORT:
        return _AT_MOST
    return min(max(_AT_LEAST, *map(len, lines)), _AT_MOST)


class _Line:
    """A line of code that gets too long.

    Args:
        source: The text.
        tree: Its syntax tree.
        number: The number of the line, from 1.
        changes: The changes of the line.
    """

    def __init__(self, source: Source, tree: Tree, number: int, changes: Sequence[Change]) -> None:
        self._source = source
        self._changes = changes
        self._start = source.line_starts[number - 1]
        self._end = source.line_end(self._start)
        self._newline = source.newline
        self._indentation = source.indentation(self._start)
        # That of arguments which all start on a new line.
        self._hanging = self._indentation + ("\t" if self._indentation.endswith("\t") else "    ")
        self._text = "".join(text for _, text, _ in self._pieces())
        self._code = _code(self._text)
        nodes = (node for node in tree.nodes_at([number]) if isinstance(node, ast.stmt))
        around = (node for node in nodes if node.lineno <= number <= (node.end_lineno or 0))
        self._statement = max(around, key=lambda node: node.lineno, default=None)

    def broken(self, limit: int, before: int) -> list[Change]:
        """Return the changes of the line with those that break it, or as they are if none makes it short.

        Args:
            limit: How long a line may be.
            before: How long the line was before.
        """
        if self._statement is not None and not {"'", '"'} & {*self._code, *self._above}:
            outer, inner = self._pairs
            text = _counted(self._source, self._text)
            lines = self._source.text.splitlines()
            rare = sum(len(each) >= len(text) for each in lines) < _MANY
            added = (new for start, end, new in self._changes if len(new) - (end - start) >= _GROWN)
            grows = rare and any(" if " in new for new in added)
            limits = dict.fromkeys((limit, max(limit, _AT_MOST), max(limit, before if grows else 0)))
            ways: list[_Way] = [self._in_parentheses, partial(self._in_brackets, outer)]
            tried = [(way, each) for way in ways for each in limits]
            if _CLOSED.search(self._source.text) and sum(len(each) > limit for each in lines) < _MANY:
                tried.sort(key=lambda pair: pair[1])  # a formatter has no other limit if there is a way
            tried += [(partial(self._in_brackets, inner), each) for each in limits]
            inside: list[tuple[_Way, int]] = [(self._between_elements, each) for each in limits]
            tried = inside + (tried if before <= limit or grows else [])
            for breaks, longest in ((breaks, each) for way, each in tried for breaks in way(each)):
                if breaks and max(map(len, replaced(text, breaks).split(self._newline))) <= longest:
                    return self._with(breaks)
        return [*self._changes]

    # -- ways to break a line, each by the columns of the breaks --------------------------------------

    def _between_elements(self, limit: int) -> Iterator[list[Change]]:
        """Break a line that shares its brackets with others between its elements."""
        opened, _, end = self._brackets
        start = opened[-1] if opened else len(self._indentation)
        gaps = self._gaps(start, len(self._code) if opened else end)
        below = self._source.text[self._end :].lstrip("\r\n").partition("\n")[0]
        if opened:
            yield self._filled(gaps, below[: _spaces(below)] or " " * start, limit)
        elif not self._is_inside:
            return
        elif end == len(self._code) and self._above[-1] in _OPENING and below.lstrip()[:1] in _CLOSING:
            comma = [(end, end, ",")] if gaps and self._code[-1] != "," else []
            at = self._newline + self._indentation
            yield [*((*gap, at) for gap in gaps or self._choices(start, end)), *comma]
        else:
            yield self._filled(gaps, self._indentation, limit)

    def _in_parentheses(self, _limit: int) -> Iterator[list[Change]]:
        """Put parentheses around a condition that is a whole value."""
        node = self._statement
        if isinstance(node, _WITH_VALUE) and node.value is not None and node.lineno == node.end_lineno:
            start, end = map(self._column, self._source.span(node.value))
            if re.search(r"\bif\b", _outside(self._code[start:end])):
                opening, closing = f"({self._newline}{self._hanging}", f"{self._newline}{self._indentation})"
                parts = ((*gap, self._newline + self._hanging) for gap in self._choices(start, end))
                yield [(start, start, opening), (end, end, closing)]
                yield [(start, start, opening), *parts, (end, end, closing)]

    def _in_brackets(self, pairs: Sequence[_Part], limit: int) -> Iterator[list[Change]]:
        """Break a line in one of some pairs of brackets: below the opening one, or as formatters do."""
        if not _CLOSED.search(self._source.text):
            near = (pair for pair in pairs if pair[0] <= limit // 2)
            yield from (self._filled(self._gaps(*pair), " " * pair[0], limit) for pair in near)
        for pair in pairs:
            yield self._alone(*pair)
            yield self._alone(*pair, self._gaps(*pair) or self._choices(*pair))

    def _filled(self, gaps: Sequence[_Part], indentation: str, limit: int) -> list[Change]:
        """Put as many elements on each line as there is room for."""
        breaks, moved = list[Change](), 0  # by how many columns the rest of the line is on the left
        for (start, end), (following, _) in pairwise([*gaps, (len(self._text), 0)]):
            if following - moved > limit:
                breaks.append((start, end, self._newline + indentation))
                moved = end - len(indentation)
        return breaks

    def _alone(self, start: int, end: int, gaps: Sequence[_Part] = ()) -> list[Change]:
        """Put what is in brackets on lines of its own: on one, or each element on its own."""
        last = len(self._code[:end].rstrip())
        is_list = bool(gaps) and self._code[gaps[0][0] - 1] == ","
        comma = "," if is_list and self._code[last - 1] != "," else ""
        return [
            (start, start + _spaces(self._code[start:]), self._newline + self._hanging),
            *((*gap, self._newline + self._hanging) for gap in gaps),
            (last, end, comma + self._newline + self._indentation),
        ]

    # -- brackets -------------------------------------------------------------------------------------

    @cached_property
    def _above(self) -> str:
        """The code of the statement above the line."""
        assert self._statement is not None
        start = min(self._source.span(self._statement)[0], self._start)
        return _code(self._source.text[start : self._start]).rstrip()

    @cached_property
    def _brackets(self) -> tuple[list[int], list[_Part], int]:
        """The brackets of the line: those that stay open, the pairs, and the end of those from above."""
        opened, pairs, end = list[int](), list[_Part](), len(self._code)
        for column, character in enumerate(self._code):
            if character in _OPENING:
                opened.append(column + 1)
            elif character in _CLOSING and opened:
                pairs.append((opened.pop(), column))
            elif character in _CLOSING:
                end = min(end, column)
        return opened, pairs, end

    @property
    def _pairs(self) -> Iterator[list[_Part]]:
        """The outer pairs of brackets of the line, from right to left, and the inner ones by their length."""
        _, pairs, _ = self._brackets
        found = [(start, end) for start, end in reversed(pairs) if self._code[start:end].strip()]
        found = [each for each in found if not _SUBSCRIPT.search(self._code[: each[0]])]
        found.sort(key=lambda pair: pair[1] - pair[0] < _WORTH_A_LINE)
        inner = {(a, b) for a, b in found if any(start < a and b < end for start, end in pairs)}
        yield [each for each in found if each not in inner]
        yield sorted(inner, key=lambda pair: pair[0] - pair[1])

    @property
    def _is_inside(self) -> bool:
        """Return whether the line starts in brackets."""
        return sum(map(self._above.count, _OPENING)) > sum(map(self._above.count, _CLOSING))

    def _gaps(self, start: int, end: int) -> list[_Part]:
        """Return where the elements of a part of the line are separated, each gap behind its comma."""
        code = _PARAMETERS.sub(lambda match: "_" * len(match[0]), _outside(self._code[start:end]))
        if _LOOP.search(code):
            return []
        commas = (start + match.end() for match in re.finditer(",", code))
        gaps = ((comma, comma + _spaces(self._code[comma:end])) for comma in commas)
        return [(comma, following) for comma, following in gaps if following < end]

    def _choices(self, start: int, end: int) -> list[_Part]:
        """Return the gaps in front of `if` and `else` in a part of the line that is a condition."""
        code = _outside(self._code[start:end])
        if _LOOP.search(code) or _PARAMETERS.search(code):
            return []
        found = re.finditer(r"[ \t]+(?=(?:if|else)\b)", code)
        return [(start + match.start(), start + match.end()) for match in found]

    # -- columns and offsets --------------------------------------------------------------------------

    def _pieces(self) -> Iterator[tuple[int, str, Change | None]]:
        """Yield the parts of the new line, each with its offset in the old text, and its change."""
        at = self._start
        for change in self._changes:
            yield at, self._source.text[at : change[0]], None
            yield change[0], change[2], change
            at = change[1]
        yield at, self._source.text[at : self._end], None

    def _column(self, offset: int) -> int:
        """Return the column in the new line of a place in the old text."""
        before = (change for change in self._changes if change[1] <= offset)
        return offset - self._start + sum(len(new) - (end - start) for start, end, new in before)

    def _with(self, breaks: Sequence[Change]) -> list[Change]:
        """Return the changes of the line, with breaks between them and in them."""
        result, column, todo = list[Change](), 0, list(breaks)
        for offset, text, change in self._pieces():
            end = column + len(text)
            own = [each for each in todo if each[0] < end or (each[0] == end and change)]
            todo = [(end, last, "") for first, last, _ in own if last > end] + todo[len(own) :]
            inner = [(first - column, min(last, end) - column, new) for first, last, new in own]
            if change is not None:
                result.append((*change[:2], replaced(text, inner)))
            result += ((offset + first, offset + last, new) for first, last, new in inner if change is None)
            column = end
        return [*result, *((self._end, self._end, new) for _, _, new in todo)]


def _code(text: str) -> str:
    """Return a text with its strings and comments blanked out: their length stays, but for a last comment."""
    return _STRING.sub(lambda match: ("" if match["comment"] else "_") * len(match[0]), text).rstrip()


def _counted(source: Source, line: str) -> str:
    """Return what counts of a line: of comments, only what formatters put there and count, so no pragmas."""
    code = _code(line)
    comment = line[len(code) :]
    counts = comment.startswith("  #") and not _PRAGMA.match(comment)
    return line if counts and _CLOSED.search(source.text) else code


def _outside(code: str) -> str:
    """Return code with what is in brackets blanked out."""
    depth, result = 0, ""
    for character in code:
        depth -= character in _CLOSING
        result += "_" if depth else character
        depth += character in _OPENING
    return result


def _spaces(text: str) -> int:
    """Return how many spaces a text starts with."""
    return len(text) - len(text.lstrip(" \t"))
