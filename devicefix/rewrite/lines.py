"""The lines and comments of a statement in the text of its module."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from devicefix.files.notebook.markers import CELL_END
from devicefix.files.text import Source
from devicefix.model import Span

_COMPOUND = (
    ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match, ast.FunctionDef, ast.ClassDef,
    ast.AsyncFor, ast.AsyncWith, ast.AsyncFunctionDef,
)  # fmt: skip
_EXPLANATION = re.compile(r"[ \t]*#+ *(?!(?:fmt|isort|type|noqa|In\b|region|pylint|mypy|ruff|flake8)\b)\w")
_SPACE = r"(?:[ \t\f]|\\(?:\r\n|\r|\n))*"
_SEMICOLON = re.compile(f"{_SPACE};{_SPACE}")
_COMMENT_REST = re.compile(r"[ \t\f]*(?:#|[\r\n]|\Z)")
_LINE_REST = re.compile(r"[ \t\f;]*(?:#|[\r\n]|\Z)")


def alone(source: Source, statement: ast.stmt) -> bool:
    """Return whether a statement has its lines to itself, comments aside."""
    return begins_line(source, statement) and _matches_rest(_COMMENT_REST, source, statement)


def ends_its_lines(source: Source, statement: ast.stmt) -> bool:
    """Return whether a statement has its lines to itself, except for a comment or a semicolon."""
    return begins_line(source, statement) and _matches_rest(_LINE_REST, source, statement)


def begins_line(source: Source, statement: ast.stmt) -> bool:
    """Return whether a statement is the first code of a line that continues no other."""
    index = source.position(source.span(statement)[0])[0] - 1
    before = line_at(source, index)[: source.span(statement)[0] - source.line_starts[index]]
    above = line_at(source, index - 1)
    return not before.strip() and ("#" in above or not above.rstrip("\r\n").endswith("\\"))


def _matches_rest(pattern: re.Pattern[str], source: Source, statement: ast.stmt) -> bool:
    return pattern.match(source.text, source.span(statement)[1]) is not None


def end_of(source: Source, statement: ast.stmt) -> int:
    """Return the end of a statement's last line, or of the comments at the end of its last block.

    Those are the comments below it that are indented as the block.
    """
    start, end = source.span(statement)
    end = source.line_end(end)
    if statement.end_lineno == statement.lineno or not isinstance(statement, _COMPOUND):
        return end
    depth = _width(source.indentation(start)) + 1
    body = getattr(statement, "body", None)
    if body and begins_line(source, body[0]):
        depth = _width(source.indentation(source.span(body[0])[0]))
    index = source.position(end)[0]
    while _is_blank(source, index) or _is_comment(source, index, depth):
        if not _is_blank(source, index):
            end = source.line_end(source.line_starts[index])
        index += 1
    return end


def else_start(source: Source, node: ast.If, blank: bool = False) -> int:
    """Return where the lines of an `elif` or `else` begin that follows the body of an `if`.

    A comment above belongs to it, unless it is as deep as the body or another such comment follows.

    Args:
        source: The text of the module.
        node: The `if`.
        blank: Whether blank lines above belong to it as well.
    """
    own_lines = begins_line(source, node.body[0])
    inner = source.indentation(source.span(node.body[0])[0])
    index = found = source.position(source.span(node.body[-1])[1])[0]
    while _is_blank(source, index) or _is_comment(source, index, 0):
        if own_lines and not _is_blank(source, index) and line_at(source, index).startswith(inner):
            found = index + 1
        index += 1
    while not blank and _is_blank(source, found):
        found += 1
    return source.line_starts[found]


def line_at(source: Source, index: int) -> str:
    """Return a line by its index, counted from 0: empty before the first and after the last."""
    if not 0 <= index < len(source.line_starts):
        return ""
    return source.text[source.line_starts[index] : _line_start(source, index + 1)]


def _line_start(source: Source, index: int) -> int:
    return source.line_starts[index] if index < len(source.line_starts) else len(source.text)


def next_line(source: Source, offset: int) -> int:
    """Return where the line after the one of an offset begins."""
    return _line_start(source, source.position(offset)[0])


def _is_blank(source: Source, index: int) -> bool:
    line = line_at(source, index)
    return bool(line) and not line.strip()


def _is_comment(source: Source, index: int, depth: int) -> bool:
    """Return whether a line is a comment that is indented at least so much."""
    line = line_at(source, index)
    return line.lstrip().startswith("#") and _width(line) >= depth


def _width(line: str) -> int:
    return len(line[: len(line) - len(line.lstrip(" \t"))].expandtabs(8))


def part_of_line(source: Source, statement: ast.stmt, block: Sequence[ast.stmt]) -> Span | None:
    """Return the part of a line that a statement and its semicolon take up, None if no other is on it."""
    start, end = source.span(statement)
    index = block.index(statement)
    for following in block[index + 1 : index + 2]:
        if _SEMICOLON.fullmatch(source.text, end, source.span(following)[0]):
            return start, source.span(following)[0]
    for before in block[max(index - 1, 0) : index]:
        if _SEMICOLON.fullmatch(source.text, source.span(before)[1], start):
            return source.span(before)[1], end
    return None


def lines_of(source: Source, statement: ast.stmt, block: Sequence[ast.stmt]) -> Span:
    """Return the lines of a statement, of the comment that explains it alone, and of needless blank lines."""
    first = source.position(source.span(statement)[0])[0] - 1
    below = source.position(end_of(source, statement))[0]
    after = below
    while _is_blank(source, after):
        after += 1
    ends_block = statement is block[-1] or line_at(source, after).startswith(CELL_END)
    explained, depth = first, _width(line_at(source, first))
    while _EXPLANATION.match(above := line_at(source, explained - 1)) and _width(above) == depth:
        explained -= 1
    if explained > 0 and (ends_block or after > below or line_at(source, below).lstrip().startswith("#")):
        first = explained
    before = first
    while _is_blank(source, before - 1):
        before -= 1
    if statement is block[0]:
        below = below if ends_block else after
    elif ends_block or first - before < after - below:
        first = before
    else:
        below = after
    return source.line_starts[first], _line_start(source, below)
