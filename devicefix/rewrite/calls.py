"""New calls from old ones: only what changes is replaced, so that comments and line breaks inside stay."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from devicefix.files.text import Source, parse
from devicefix.rewrite.edits import Change, replaced
from devicefix.rewrite.parsing import comments_in, parse_expression

_SPACE = re.compile(r"(?:\s|\\(?:\r\n|\r|\n)|#[^\r\n]*)*")
_LAST_LINE_BREAK = re.compile(r"(?:\r\n|\r|\n)[ \t\f]*\Z")
_WORD = re.compile(r"[^\s=#\\]+")  # a keyword, in whatever form of Unicode
_COMMENT = re.compile(r"[ \t\f]*#[^\r\n]*")


def moved(device: str) -> Callable[[str], str]:
    """Return the rewrite of `x.cuda(1, True)` as `x.to(device, non_blocking=True)`.

    Every argument but the device survives.
    """

    def change(text: str) -> str:
        call = _Call(text)
        changes: list[Change] = [(*call.method, "to")]
        first = call.arguments[0] if call.arguments else None
        given = first if first and not (first.keyword or first.stars) else call.named("device")
        if given is not None:
            start = given.start if given is first else given.value
            changes.append((start, given.end, device))
        elif first is not None:
            changes.append((first.start, first.start, f"{device}, "))
        else:
            changes.append((call.end, call.end, device))
        changes += (
            (argument.start, argument.start, "non_blocking=")
            for argument in call.arguments
            if argument is not given and not (argument.keyword or argument.stars)
        )
        return call.changed(*changes)

    return change


def with_keyword(name: str, value: str) -> Callable[[str], str]:
    """Return the rewrite of a call with one more keyword argument, the last one before `**kwargs`."""
    new = f"{name}={value}"

    def change(text: str) -> str:
        call = _Call(text)
        for argument in call.arguments:
            if argument.stars == "**":
                return call.changed((argument.start, argument.start, f"{new}, "))
        if not call.arguments:
            return call.changed((call.end, call.end, new))
        last = call.arguments[-1]
        if last.is_bare:
            return call.changed((last.start, last.start, "("), (last.end, last.end, f"), {new}"))
        if last.comma is None:
            return call.changed((last.end, last.end, f", {new}"))
        gap, at = call.gap(last), last.comma + 1  # the call still ends in a comma
        comment = _COMMENT.match(call.text, at)
        if comment and gap[:1] in ("\r", "\n"):
            at = comment.end()
        return call.changed((at, at, f"{gap}{new},"))

    return change


def receiver_of(text: str) -> str:
    """Return the code of `x` in that of `x.method(...)`."""
    return _Call(text).receiver


def with_function(text: str, function: str) -> str:
    """Return the code of a call with another function."""
    call = _Call(text)
    return call.changed((call.start, call.function, function))


def first_choice(text: str) -> str:
    """Return the code of `a` in that of `a if b else c`, with the comments of the rest after it."""
    import libcst as cst

    module, choice = parse_expression(text)
    assert isinstance(choice, cst.IfExp)
    body = choice.body
    code = module.code_for_node(body)
    if _is_one_line(code):
        code = module.code_for_node(body.with_changes(lpar=(), rpar=()))
    gaps = [choice.whitespace_before_if, choice.whitespace_after_if]
    gaps += [choice.whitespace_before_else, choice.whitespace_after_else]
    breaks = [gap for gap in gaps if isinstance(gap, cst.ParenthesizedWhitespace)]
    comments = comments_in(choice)[len(comments_in(choice.body)) :]
    if not comments:
        return code
    # A comment needs a line end, and so brackets around it: those that the breaks are in, or new ones.
    indentation = breaks[0].last_line.value if breaks else ""
    lines = f"{module.default_newline}{indentation}".join(comment.value for comment in comments)
    lines = f"{code}  {lines}{module.default_newline}{indentation}"
    return lines if breaks else f"({lines})"


def _is_one_line(code: str) -> bool:
    return "\n" not in code and "\r" not in code


class _Argument(NamedTuple):
    """An argument in the text of a call.

    Attributes:
        start: where it starts, with its keyword, stars and parentheses.
        value: where its value starts, with its parentheses.
        end: where it ends.
        keyword: its keyword, empty if there is none.
        stars: the stars before it.
        comma: where the comma after it is, None if there is none.
        is_bare: whether it is a generator expression that has no parentheses but those of the call.
    """

    start: int
    value: int
    end: int
    keyword: str
    stars: str
    comma: int | None
    is_bare: bool


class _Call:
    """A call in a text, which may span lines.

    Attributes:
        text: the text, in parentheses if it spans lines; the positions refer to it.
        start: where the call starts.
        function: where what is called ends, with its parentheses.
        end: where the closing parenthesis is.
        arguments: the arguments in order.
    """

    def __init__(self, text: str) -> None:
        spans_lines = "\n" in text or "\r" in text  # Python allows no more than 200 parentheses
        self._around = ("(", "\n)") if spans_lines else ("", "")
        self._source = Source(text.join(self._around).encode())
        self.text = self._source.text
        statement = parse(self.text).body[0]
        assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        self._node = statement.value
        self.start, end = self._source.span(self._node)
        self.end = end - 1
        self.function = self._closed(self._node.func)
        self.arguments = list(self._arguments())

    @property
    def method(self) -> tuple[int, int]:
        """Where the name of the method starts and ends."""
        assert isinstance(self._node.func, ast.Attribute)
        dot = self._after_space(self._closed(self._node.func.value))
        return self._after_space(dot + 1), self._source.span(self._node.func)[1]

    @property
    def receiver(self) -> str:
        """The code of `x` in `x.method(...)`."""
        assert isinstance(self._node.func, ast.Attribute)
        return self.text[self._source.span(self._node.func)[0] : self._closed(self._node.func.value)]

    def named(self, keyword: str) -> _Argument | None:
        """Return the argument with a keyword."""
        return next((argument for argument in self.arguments if argument.keyword == keyword), None)

    def code(self, argument: _Argument) -> str:
        """Return the code of an argument's value."""
        return self.text[argument.value : argument.end]

    def gap(self, argument: _Argument) -> str:
        """Return the white space before an argument, without comments and blank lines."""
        before = [other for other in self.arguments if other.start < argument.start]
        if not before or before[-1].comma is None:
            return " "
        gap = self.text[before[-1].comma + 1 : argument.start]
        line_break = _LAST_LINE_BREAK.search(gap)
        return line_break.group() if line_break else gap

    def changed(self, *changes: Change) -> str:
        """Return the code of the call with some parts replaced."""
        before, after = self._around
        return replaced(self.text, sorted(changes)).removeprefix(before).removesuffix(after)

    def _arguments(self) -> Iterator[_Argument]:
        at = self._after_space(self.function) + 1
        given: list[ast.expr | ast.keyword] = [*self._node.args, *self._node.keywords]
        for node in sorted(given, key=self._source.span):
            argument = self._argument(node, self._after_space(at))
            yield argument
            at = self._after_space(argument.end) + 1

    def _argument(self, node: ast.expr | ast.keyword, start: int) -> _Argument:
        keyword, stars, value, inner = "", "", start, node
        if isinstance(node, (ast.Starred, ast.keyword)):
            inner = node.value
            if isinstance(node, ast.keyword) and node.arg is not None:
                keyword, name = node.arg, _WORD.match(self.text, start)
                assert name is not None
                value = self._after_space(name.end()) + 1  # after the equals sign
            else:
                stars = "*" if isinstance(node, ast.Starred) else "**"
                value += len(stars)
        bare = isinstance(inner, ast.GeneratorExp) and self._source.span(inner)[1] > self.end
        if isinstance(inner, ast.GeneratorExp) and bare:
            last = inner.generators[-1]
            inner = [last.iter, *last.ifs][-1]
        end = self._closed(inner)
        comma = self._after_space(end)
        return _Argument(
            start,
            self._after_space(value),
            end,
            keyword,
            stars,
            comma if self.text[comma] == "," else None,
            bare,
        )

    def _after_space(self, at: int) -> int:
        """Return the place after white space, line breaks and comments."""
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def _closed(self, node: ast.expr | ast.keyword) -> int:
        """Return the end of an expression, with the parentheses around it."""
        _, end = self._source.span(node)
        while (following := self._after_space(end)) < self.end and self.text[following] == ")":
            end = following + 1
        return end
