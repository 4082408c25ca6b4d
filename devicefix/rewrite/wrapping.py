"""Line breaks in front of arguments that a fix makes too long for their line."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, takewhile
from typing import NamedTuple

from devicefix.facts.scopes import with_defaults
from devicefix.facts.tree import Tree
from devicefix.files.notebook.markers import MAGIC
from devicefix.files.text import Change, Source

# A line may become as long as the longest of the file, within these bounds; a short file shows no limit.
_AT_LEAST, _AT_MOST = 88, 110
_SHORT = 100  # lines
_WORTH_A_LINE = 12  # characters
_WITH_VALUE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)


def wrapped(source: Source, tree: Tree, changes: Sequence[Change]) -> list[Change]:
    """Return changes, with line breaks in front of the arguments that make a line too long.

    Only lines that were short enough before are broken.

    Args:
        source: the text that the changes are for.
        tree: its syntax tree.
        changes: changes from `resolved`.
    """
    result: list[Change] = []
    limit = 0
    for number, group in groupby(changes, lambda change: source.position(change[0])[0]):
        found = list(group)
        start = source.line_starts[number - 1]
        length = source.line_end(start) - start
        more = _growth(found)
        breaks: Sequence[Change] = found
        first = start + len(source.indentation(start))
        command = source.text.startswith(MAGIC, first)  # it ends with its line
        whole = not command and not any("\n" in new or "\r" in new for _, _, new in found)
        if whole and length + more > _AT_LEAST:
            limit = limit or _limit(source)
            if length <= limit < length + more:
                for longest in (limit, _AT_MOST):
                    breaks = list(_Line(source, tree, number, longest).with_breaks(found))
                    if length + more <= _AT_MOST or any(source.newline in new for _, _, new in breaks):
                        break
        result += breaks
    return result


def _limit(source: Source) -> int:
    """Return how long a line may become."""
    lines = source.text.splitlines()
    if len(lines) < _SHORT:
        return _AT_MOST
    return min(max(_AT_LEAST, *map(len, lines)), _AT_MOST)


def _growth(changes: Iterable[Change]) -> int:
    """Return how many characters changes add."""
    return sum(len(new) - (end - start) for start, end, new in changes)


class _Argument(NamedTuple):
    """An argument of a call, or a parameter with its default: offsets of its start, end and parenthesis."""

    start: int
    end: int
    opening: int
    of_call: bool


class _Line:
    """A line of code that gets too long.

    Args:
        source: the text.
        tree: its syntax tree.
        number: the number of the line, from 1.
        limit: how long it may be.
    """

    def __init__(self, source: Source, tree: Tree, number: int, limit: int) -> None:
        self._source = source
        self._nodes = list(tree.nodes_at([number]))  # no fix is inside an f-string
        self._arguments = [each for node in self._nodes for each in self._arguments_of(node)]
        self._limit = limit
        self._start = source.line_starts[number - 1]
        self._end = source.line_end(self._start)
        self._newline = source.newline
        self._indentation = source.indentation(self._start)
        # That of arguments which all start on a new line.
        self._hanging = self._indentation + ("\t" if self._indentation.endswith("\t") else "    ")
        self._columns = [(self._start, 0)]  # of the new text: where parts of the old one start in it

    def with_breaks(self, changes: Sequence[Change]) -> Iterator[Change]:
        """Yield the changes of the line, from left to right, and the line breaks between them."""
        for change in changes:
            start, end, new = change
            argument = self._around(start, end)
            inside = argument.end if argument is not None else end
            last = inside if changes[-1][1] > inside else self._end
            in_front = None
            more = _growth(each for each in changes if start <= each[0] and each[1] <= inside)
            if last <= self._end and self._column(last) + more > self._limit:
                in_front = self._break(argument, more) if argument is not None else None
                if in_front is not None:
                    yield in_front
                    self._columns.append((in_front[1], self._width(in_front[2])))
                else:
                    new = self._with_break_inside(change) or new
                    if new is change[2] and len(changes) == 1:
                        new = self._with_lines(change) or new
            broken = self._newline in new
            self._columns.append((end, self._width(new) if broken else self._column(start) + len(new)))
            yield start, end, new
            if change is changes[-1] and argument is not None and in_front is not None:
                yield from self._break_behind(argument)

    def _column(self, offset: int) -> int:
        """Return the column of a part of the old text in the new one."""
        at, column = max(each for each in self._columns if each[0] <= offset)
        return column + offset - at

    def _width(self, text: str) -> int:
        """Return the width of the last line of a text."""
        return len(text.rpartition(self._newline)[2])

    def _break(self, argument: _Argument, more: int) -> Change | None:
        """Return the line break for an argument that grows, None where none is possible or helps."""
        done, _ = self._columns[-1]
        before = self._source.text[self._start : argument.start]
        indentation = self._below(argument.opening)
        rest = 0 if self._next(argument) else self._end - argument.end  # which goes with the last one
        if before.rstrip(" ").endswith(",") and self._fits(
            len(indentation) + argument.end - argument.start + more, rest
        ):
            gap = self._start + len(before.rstrip(" "))
            return (gap, argument.start, self._newline + indentation) if gap >= done else None
        behind = argument.opening + 1
        if not argument.of_call or behind < done:
            return None
        fits = self._fits(len(self._hanging) + argument.end - behind + more, rest)
        return (behind, behind, self._newline + self._hanging) if fits else None

    def _fits(self, width: int, rest: int) -> bool:
        """Return whether a line is short enough; the rest of the old line may be behind its end."""
        return width <= self._limit and width + rest <= _AT_MOST

    def _next(self, argument: _Argument) -> _Argument | None:
        """Return the argument of the same call that follows another."""
        others = (each for each in self._arguments if each.opening == argument.opening)
        return min((each for each in others if each.start >= argument.end), default=None)

    def _break_behind(self, argument: _Argument) -> Iterator[Change]:
        """Yield the line break in front of the next argument, where the line is still too long."""
        if self._column(self._end) <= self._limit:
            return
        following = self._next(argument)
        start = following.start if following else self._end
        between = self._source.text[argument.end : start]
        if self._end - start >= _WORTH_A_LINE and between.strip() == ",":
            gap = argument.end + len(between.rstrip())
            yield gap, start, self._newline + " " * self._column(argument.start)

    def _with_break_inside(self, change: Change) -> str | None:
        """Return the new text of a call that gets one more argument, with a line break if one helps."""
        start, end, new = change
        old = self._source.text[start:end]
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
        calls = (node for node in self._nodes if isinstance(node, ast.Call))
        call = next((node for node in calls if self._source.span(node) == (start, end)), None)
        if call is None or not new.startswith(", ", common) or not new.endswith(old[common:]):
            return None
        opening = self._opening(call)
        indentation = self._below(opening)
        argument = new[common + 2 :]
        rest = self._end - end
        if self._fits(len(indentation) + len(argument), rest):
            return f"{new[: common + 1]}{self._newline}{indentation}{argument}"
        behind = opening + 1 - start
        fits = self._fits(len(self._hanging) + len(new) - behind, rest)
        return f"{new[:behind]}{self._newline}{self._hanging}{new[behind:]}" if fits else None

    def _with_lines(self, change: Change) -> str | None:
        """Return the new text of an expression on several lines, None where that does not help.

        The arguments of a call in a chain get their own line, and so does a condition in parentheses: a
        whole value gets them.
        """
        start, end, new = change
        before, rest = self._column(start), self._end - end
        try:
            root = ast.parse(new, mode="eval").body
        except SyntaxError:
            return None
        if not new.isascii():
            return None
        newline, indentation, hanging = self._newline, self._indentation, self._hanging
        if isinstance(root, ast.IfExp):
            if root.col_offset == 0:  # without parentheses around the whole
                values = [each.value for each in self._nodes if isinstance(each, _WITH_VALUE) and each.value]
                if (start, end) not in map(self._source.span, values):
                    return None
                new = f"({new})"
            calls = [(1, len(new) - 1)]
        else:
            calls = list(_calls(root))
            for opening, closing in calls[-1:]:
                tail = len(hanging) + len(new) - opening + rest
                is_last = closing == len(new) - 1 and closing - opening >= _WORTH_A_LINE
                if is_last and max(before + opening, tail) <= self._limit:
                    return f"{new[:opening]}{newline}{hanging}{new[opening:]}"
        for opening, closing in calls:
            widths = (
                before + opening,
                len(hanging) + closing - opening,
                len(indentation) + len(new) - closing + rest,
            )
            if max(widths) <= self._limit:
                return (
                    f"{new[:opening]}{newline}{hanging}{new[opening:closing]}"
                    f"{newline}{indentation}{new[closing:]}"
                )
        return None

    def _around(self, first: int, last: int) -> _Argument | None:
        """Return the innermost argument, or parameter with its default, around a part of the text."""
        around = (each for each in self._arguments if each.start <= first and last <= each.end)
        return max(around, default=None)

    def _arguments_of(self, node: ast.AST) -> Iterator[_Argument]:
        """Yield the arguments of a call, or the parameters of a function that have defaults."""
        source = self._source
        if isinstance(node, ast.Call):
            arguments: list[ast.expr | ast.keyword] = [*node.args, *node.keywords]
            for each in arguments:
                yield _Argument(*source.span(each), self._opening(node), of_call=True)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            opening = source.text.find("(", source.span(node)[0])
            for parameter, default in with_defaults(node.args):
                if default is not None:
                    start, end = source.span(parameter)[0], source.span(default)[1]
                    yield _Argument(start, end, opening, of_call=False)

    def _opening(self, call: ast.Call) -> int:
        """Return the offset of the opening parenthesis of a call."""
        return self._source.text.find("(", self._source.span(call.func)[1])

    def _below(self, opening: int) -> str:
        """Return the indentation below the first argument, or that of the line if that is on one above."""
        more = self._column(opening) + 1 - len(self._indentation) if opening >= self._start else 0
        return self._indentation + " " * more


def _calls(node: ast.expr) -> Iterator[tuple[int, int]]:
    """Yield where the arguments of the calls of a chain start and end, from left to right."""
    if isinstance(node, ast.Attribute | ast.Subscript):
        yield from _calls(node.value)
    elif isinstance(node, ast.Call):
        yield from _calls(node.func)
        arguments: list[ast.expr | ast.keyword] = [*node.args, *node.keywords]
        if arguments and not any(isinstance(each, ast.Starred | ast.GeneratorExp) for each in node.args):
            start = min(each.col_offset for each in arguments)
            yield start, (node.end_col_offset or 0) - 1
