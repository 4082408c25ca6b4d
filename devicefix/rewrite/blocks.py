"""Edits of whole statements: put one under a guard, take one away, take a guard away."""

from __future__ import annotations

import ast
import re

from devicefix.files.notebook.markers import CELL_END
from devicefix.files.text import Source
from devicefix.model import Edit

_LINE = re.compile(r"[^\r\n]+")
_LINE_END = re.compile(r"\r\n|\r|\n")

# In the text that a notebook is looked at as, a call of this name stands where a cell ends, and of the other
# for what only IPython understands: `%matplotlib inline`, `!pip install torch`.
_AT_CELL_END = re.compile(rf"(?:\s|#[^\r\n]*)*{CELL_END}")
_SAYS_NOTHING = ("set_", "reset_", "synchronize", "init", "ipc_collect", "empty_cache", "manual_seed")


def alone(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement has its lines to itself, comments aside."""
    start, end = source.span(statement)
    line, _ = source.position(start)
    before = source.text[source.line_starts[line - 1] : start]
    after = source.text[end : source.line_end(end)].strip()
    return not before.strip() and (not after or after.startswith("#"))


def under_guard(source: Source, statement: ast.stmt, test: str) -> Edit:
    """The edit that puts a statement under `if test:`, or makes it `statement if test else None`.

    Only an expression statement can share its line with others. One that a notebook displays stays one.
    """
    start, end = source.span(statement)
    if not alone(source, statement) or _displayed(source, statement):
        assert isinstance(statement, ast.Expr)
        return Edit(start, end, lambda text: f"{text} if {test} else None")
    indentation = source.indentation(start)
    deeper = "\t" if "\t" in indentation else "    "
    newline = source.newline
    verbatim = _holds_long_string(statement)

    def under(text: str) -> str:
        return deeper + (text if verbatim else _LINE_END.sub(rf"\g<0>{deeper}", text))

    def new(text: str) -> str:
        return f"if {test}:{newline}{indentation}{under(text)}"

    return Edit(start, end, new, guard=test, under=under)


def _displayed(source: Source, statement: ast.stmt) -> bool:
    """Whether a notebook shows the value of a statement, since it is the last of a cell."""
    return not statement.col_offset and _says_something(statement) and _ends_cell(source, statement)


def _says_something(statement: ast.stmt) -> bool:
    """Whether a statement is an expression with a value."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
    return call is not None and not name.startswith(_SAYS_NOTHING)


def _ends_cell(source: Source, statement: ast.stmt) -> bool:
    return _AT_CELL_END.match(source.text, source.span(statement)[1]) is not None


def removed(source: Source, statement: ast.stmt, block: list[ast.stmt]) -> Edit:
    """The edit that takes a statement and its lines away; `pass` stays where nothing else would."""
    start, end = source.span(statement)
    if len(block) == 1 or not alone(source, statement):
        return Edit(start, end, "pass")
    return _without_lines(source, start, end)


def _without_lines(source: Source, start: int, end: int) -> Edit:
    """The edit that takes the lines away that hold some characters."""
    line, _ = source.position(start)
    last, _ = source.position(end)
    after = source.line_starts[last] if last < len(source.line_starts) else len(source.text)
    return Edit(source.line_starts[line - 1], after, "")


def is_elif(source: Source, node: ast.If) -> bool:
    """Whether an `if` is the `elif` of another."""
    return source.text.startswith("elif", source.span(node)[0])


def elif_without(source: Source, node: ast.If, branch: list[ast.stmt]) -> tuple[Edit, ...]:
    """The edits that take one branch of an `elif` away, whose test then is not asked."""
    start, end = source.span(node)
    if branch is node.orelse:
        colon = _colon(source, node)
        below = source.line_starts[source.position(source.span(node.body[-1])[1])[0]]
        return Edit(start, colon, "else"), _without_lines(source, below, end)
    if not node.orelse:
        return (_without_lines(source, start, end),)
    following = source.span(node.orelse[0])[0]
    if not source.text.startswith("elif", following):
        following = source.text.rindex("else", source.span(node.body[-1])[1], following)
    return (Edit(start, following, ""),)


def _colon(source: Source, node: ast.If) -> int:
    """Where the colon behind a test is; brackets and comments may stand before it."""
    at = source.span(node.test)[1]
    while source.text[at] != ":":
        at = source.line_end(at) if source.text[at] == "#" else at + 1
    return at


def can_unwrap(source: Source, node: ast.If, body: list[ast.stmt]) -> bool:
    """Whether a branch of an `if` can take the place of the whole: it stands on lines of its own."""
    if is_elif(source, node) or not alone(source, body[0]):
        return False
    if "#" in source.text[source.span(node.test)[1] : _colon(source, node)]:
        return False  # a comment inside the header, which would be lost
    return body[0].lineno > node.lineno and not any(_holds_long_string(each) for each in body)


def unwrapped(source: Source, node: ast.If, body: list[ast.stmt]) -> tuple[Edit, ...]:
    """The edits that put a branch of an `if` in the place of the whole; edits inside it go along."""
    start, end = source.span(node)
    colon = _colon(source, node)
    header_end = source.line_end(colon)
    first = source.line_starts[body[0].lineno - 1]
    last = source.line_end(source.span(body[-1])[1])
    comment = source.text[colon:header_end].partition("#")[2] if body is node.body else ""
    outer, inner = source.indentation(start), source.indentation(source.span(body[0])[0])
    # What stands between the header and the body are comments: they stay.
    head = source.line_starts[source.position(header_end)[0]] if body is node.body else first

    def new(text: str) -> str:
        text = _LINE.sub(lambda line: _dedented(line.group(), inner, outer), text)
        if comment:
            text = f"{outer}#{comment}{source.newline}{text}"
        # A blank line may come first, with less white space than there is before the `if`.
        return text.removeprefix(outer) if text.startswith(outer) else text.lstrip(" \t\f")

    edits = [Edit(start, end, new), Edit(start, head, "")]
    if last < end:  # the other branch
        edits.append(Edit(last, end, ""))
    if not node.col_offset and _says_something(body[-1]) and _ends_cell(source, node):
        shown = source.span(body[-1])[1]
        edits.append(Edit(shown, shown, ";"))  # which keeps a notebook from showing it
    return tuple(edits)


def _dedented(line: str, inner: str, outer: str) -> str:
    if line.startswith(inner):
        return outer + line[len(inner) :]
    return outer + line.lstrip() if line.strip() else line


def _holds_long_string(statement: ast.stmt) -> bool:
    """Whether a string spans lines in a statement: moving its lines would change it."""
    return any(
        isinstance(node, (ast.Constant, ast.JoinedStr)) and node.lineno != node.end_lineno
        for node in ast.walk(statement)
        if isinstance(node, ast.expr)
    )
