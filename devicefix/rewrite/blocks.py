"""Edits of whole statements: put one under a guard, take a guard away, drop a branch, remove one.

What changes is parsed by LibCST, one statement at a time. An indented one is parsed under a header line, so
that comments, strings and continuation lines keep their text, and move with the block that they are in. What
goes away whole is not parsed: its lines are cut.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from devicefix.facts import Facts
from devicefix.files.notebook.markers import CELL_END
from devicefix.files.text import Source
from devicefix.model import Edit, Effect, Removal, Span
from devicefix.rewrite.parsing import comments_in, parse_expression, parse_module

if TYPE_CHECKING:
    import libcst as cst

    _Lines = tuple[Sequence[cst.BaseStatement], Sequence[cst.EmptyLine]]  # and comments after the last one

_AT_CELL_END = re.compile(rf"(?:\s|#[^\r\n]*)*{CELL_END}")
_WITHOUT_VALUE = (
    "set_", "reset_", "synchronize", "init", "ipc_collect", "empty_cache", "manual_seed",
)  # fmt: skip
_PURE = (
    ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Tuple, ast.List,
    ast.expr_context, ast.boolop, ast.cmpop, ast.unaryop,
)  # fmt: skip
_EXPLANATION = re.compile(r"[ \t]*#+ *(?!(?:fmt|isort|type|noqa|In\b|region|pylint|mypy|ruff|flake8)\b)\w")
_FIRST_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)")
_SEMICOLON = re.compile(r"[ \t]*;[ \t]*")
_LINE_REST = re.compile(r"[ \t\f;]*(?:#|[\r\n]|\Z)")



# -- under a guard -----------------------------------------------------------------------------------------


def put_under_guard(facts: Facts, statement: ast.stmt, test: str) -> Edit:
    """Return the edit that puts a statement under `if test:`, or makes it `statement if test else None`.

    The latter is for an expression that shares its line with other statements, or whose value a notebook
    shows.

    Args:
        facts: The facts of the module.
        statement: The statement.
        test: The code of the guard's test.
    """
    source = facts.source
    start, end = source.span(statement)
    if not alone(source, statement) or _is_shown(source, statement):
        assert isinstance(statement, ast.Expr)
        return Edit(start, end, lambda text: f"{text} if {test} else None")
    indent = _indent(facts, statement)

    def guarded(parsed: cst.BaseStatement) -> _Lines:
        import libcst as cst

        return [cst.If(parse_expression(test)[1], cst.IndentedBlock([parsed], indent=indent))], []

    new = _on_statement(source, start, guarded)

    def under(text: str) -> str:
        body = _FIRST_LINE.sub("", new(text), count=1)
        return body.removeprefix(source.indentation(start))

    return Edit(start, end, new, guard=test, under=under, effect=Effect(added=("If",), deeper=1))


def _indent(facts: Facts, statement: ast.stmt) -> str:
    """Return the white space by which a new block in a statement's place is indented.

    It is that of the block that the statement is in, or else that of the module's first block.
    """
    source = facts.source
    inner = source.indentation(source.span(statement)[0])
    if inner:
        header = facts.tree.parents[statement]
        line = header.pattern.lineno if isinstance(header, ast.match_case) else header.lineno  # type: ignore[attr-defined]
        outer = source.indentation(source.line_starts[line - 1])
        return inner.removeprefix(outer) or "    "
    for other in facts.tree.module.body:
        block = getattr(other, "body", None)
        if block and block[0].lineno > other.lineno:
            return source.indentation(source.span(block[0])[0]) or "    "
    return "    "


# -- without a guard or a branch ---------------------------------------------------------------------------


def can_unwrap(source: Source, node: ast.If) -> bool:
    """Return whether the body of an `if` can take the place of the whole: the `if` begins its own lines."""
    return not is_elif(source, node) and node.body[0].lineno > node.lineno


def unwrap(facts: Facts, node: ast.If) -> Edit:
    """Return the edit that puts the body of an `if` in the place of the whole."""
    return _unwrapped(facts.source, node, node.body)


def without_branch(facts: Facts, node: ast.If, branch: Sequence[ast.stmt]) -> tuple[Edit, ...]:
    """Return the edits that take away a branch of an `if` or `elif`, and the test that is then needless.

    Args:
        facts: The facts of the module.
        node: The `if` or `elif`.
        branch: Its body or its `orelse`.
    """
    source = facts.source
    if branch is not node.body:
        return (_as_else(source, node) if is_elif(source, node) else _unwrapped(source, node, node.body),)
    if not node.orelse:
        return (_cut_clause(source, node) if is_elif(source, node) else remove(facts, node),)
    if is_elif(source, node):
        return (_cut_clause(source, node),)
    if _is_elif_of(source, node):
        start, _ = source.span(node.orelse[0])
        end = start + len("elif")
        effect = Effect(added=("If",), removed=((start, end),))
        return _cut_clause(source, node), Edit(start, end, "if", effect=effect)
    return (_unwrapped(source, node, node.orelse),)


def is_elif(source: Source, node: ast.If) -> bool:
    """Return whether an `if` is the `elif` of another."""
    return source.text.startswith("elif", source.span(node)[0])


def _unwrapped(source: Source, node: ast.If, branch: Sequence[ast.stmt]) -> Edit:
    """Return the edit that puts a branch of an `if` in the place of the whole."""
    start, _ = source.span(node)
    end = end_of(source, node)
    other = (start, _else_start(source, node)) if branch is node.orelse else (start, start + len("if"))
    removed = [other]
    if branch is node.body and node.orelse:
        removed.append((_else_start(source, node), end))
    shown = not node.col_offset and _has_value(branch[-1]) and _ends_cell(source, node)

    def unwrapped(parsed: cst.BaseStatement) -> _Lines:
        import libcst as cst

        assert isinstance(parsed, cst.If)
        clause: cst.If | cst.Else = parsed
        comments = comments_in(parsed.test)
        if branch is node.orelse:
            assert isinstance(parsed.orelse, cst.Else)
            clause = parsed.orelse
            comments = [comment for line in clause.leading_lines for comment in comments_in(line)]
        else:
            comments += comments_in(parsed.whitespace_before_test) + comments_in(parsed.whitespace_after_test)
        return _on_their_own(clause.body, comments, silent=shown)

    return Edit(
        start, end, _on_statement(source, start, unwrapped), effect=Effect(removed=tuple(removed), deeper=-1)
    )


def _on_their_own(suite: cst.BaseSuite, comments: list[cst.Comment], silent: bool) -> _Lines:
    """Return the statements of a block, and its comments, for the block around it.

    Args:
        suite: The block.
        comments: Comments to put above the statements.
        silent: Whether to keep a notebook from showing the value of the last statement.
    """
    import libcst as cst

    if isinstance(suite, cst.SimpleStatementSuite):
        body: list[cst.BaseStatement] = [
            cst.SimpleStatementLine(suite.body, trailing_whitespace=suite.trailing_whitespace)
        ]
        footer: Sequence[cst.EmptyLine] = ()
    else:
        assert isinstance(suite, cst.IndentedBlock)
        body, footer = [*suite.body], suite.footer  # type: ignore[list-item]
        comments = comments + comments_in(suite.header)
    above = [cst.EmptyLine(comment=comment) for comment in comments]
    first = body[0]
    lines = [*first.leading_lines]  # type: ignore[attr-defined]
    while lines and lines[0].comment is None:
        del lines[0]
    body[0] = first.with_changes(leading_lines=[*above, *lines])
    if silent and isinstance(body[-1], cst.SimpleStatementLine):
        *before, last = body[-1].body
        body[-1] = body[-1].with_changes(body=[*before, last.with_changes(semicolon=cst.Semicolon())])
    return body, footer


def _as_else(source: Source, node: ast.If) -> Edit:
    """Return the edit that makes the last `elif` of an `if` its `else`, and takes away the old one."""
    start, _ = source.span(node)
    end = end_of(source, node)

    def as_else(parsed: cst.BaseStatement) -> _Lines:
        import libcst as cst

        assert isinstance(parsed, cst.If) and isinstance(parsed.orelse, cst.If)
        clause = parsed.orelse
        comments = comments_in(clause.test)
        comments += comments_in(clause.whitespace_before_test) + comments_in(clause.whitespace_after_test)
        lines = [*clause.leading_lines, *(cst.EmptyLine(comment=comment) for comment in comments)]
        return [parsed.with_changes(orelse=cst.Else(clause.body, leading_lines=lines))], []

    return Edit(
        start,
        end,
        _on_statement(source, start, as_else, after_if=True),
        effect=Effect(removed=((start, start + len("elif")), (_else_start(source, node), end))),
    )


# -- what goes away whole ----------------------------------------------------------------------------------


def remove(facts: Facts, statement: ast.stmt) -> Edit:
    """Return the edit that removes a statement, its comments and its lines.

    Where nothing else is in the block, the block goes with it, or gets a `pass`.
    """
    source, block = facts.source, facts.tree.block(statement)
    if _ends_its_lines(source, statement):
        span = _lines_of(source, statement, block)
    else:
        span = _part_of_line(source, statement, block)
    if span is None:
        return (
            _emptied(facts, statement, block) if len(block) == 1 else _replaced_by_pass(source, statement)
        )
    removal = Removal(source.span(block[0])[0], len(block), _emptied(facts, statement, block))
    return Edit(*span, "", effect=Effect(removed=(span,)), removal=removal)


def _emptied(facts: Facts, statement: ast.stmt, block: Sequence[ast.stmt]) -> Edit:
    """Return the edit that removes a statement where nothing else is left in its block."""
    source, parent = facts.source, facts.tree.parents[statement]
    if isinstance(parent, ast.If):
        if block is parent.orelse and not _is_elif_of(source, parent):
            span = _else_start(source, parent, blank=True), _next_line(source, end_of(source, parent))
            return Edit(*span, "", effect=Effect(removed=(span,)))
        if block is parent.body and not parent.orelse and _has_no_effect(parent.test):
            return _cut_clause(source, parent) if is_elif(source, parent) else remove(facts, parent)
    return _replaced_by_pass(source, statement)


def _replaced_by_pass(source: Source, statement: ast.stmt) -> Edit:
    start, end = source.span(statement)
    if _ends_its_lines(source, statement):
        end = end_of(source, statement)
    return Edit(start, end, "pass", effect=Effect(added=("Pass",), removed=((start, end),)))


def _cut_clause(source: Source, node: ast.If) -> Edit:
    """Return the edit that cuts the body of an `if` or `elif` with its test, up to the next clause."""
    end = _else_start(source, node) if node.orelse else _next_line(source, end_of(source, node))
    span = source.line_starts[node.lineno - 1], end
    return Edit(*span, "", effect=Effect(removed=(span,)))


def _has_no_effect(test: ast.expr) -> bool:
    """Return whether a test can be left out: it only reads names and compares."""
    return all(isinstance(node, _PURE) for node in ast.walk(test))


def _part_of_line(source: Source, statement: ast.stmt, block: Sequence[ast.stmt]) -> Span | None:
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


def _lines_of(source: Source, statement: ast.stmt, block: Sequence[ast.stmt]) -> Span:
    """Return the lines of a statement, of the comment that explains it alone, and of needless blank lines."""
    first = source.position(source.span(statement)[0])[0] - 1
    below = source.position(end_of(source, statement))[0]
    after = below
    while _is_blank(source, after):
        after += 1
    ends_block = statement is block[-1] or _line(source, after).startswith(CELL_END)
    explained = first
    while _EXPLANATION.match(_line(source, explained - 1)) and _same_depth(source, first, explained - 1):
        explained -= 1
    if explained > 0 and (ends_block or after > below or _line(source, below).lstrip().startswith("#")):
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


# -- lines and comments ------------------------------------------------------------------------------------


def alone(source: Source, statement: ast.stmt) -> bool:
    """Return whether a statement has its lines to itself, comments aside."""
    start, end = source.span(statement)
    line, _ = source.position(start)
    before = source.text[source.line_starts[line - 1] : start]
    after = source.text[end : source.line_end(end)].strip()
    return not before.strip() and (not after or after.startswith("#"))


def end_of(source: Source, statement: ast.stmt) -> int:
    """Return the end of a statement's last line, or of the comments at the end of its last block.

    Those are the comments below it that are indented more than the statement.
    """
    start, end = source.span(statement)
    end = source.line_end(end)
    if statement.end_lineno == statement.lineno:
        return end
    depth = _width(source.indentation(start))
    index = source.position(end)[0]
    while _is_blank(source, index) or _is_comment(source, index, depth + 1):
        if not _is_blank(source, index):
            end = source.line_end(source.line_starts[index])
        index += 1
    return end if hasattr(statement, "body") else source.line_end(source.span(statement)[1])


def _else_start(source: Source, node: ast.If, blank: bool = False) -> int:
    """Return where the lines of an `elif` or `else` begin that follows the body of an `if`.

    A comment above belongs to it, unless it is as deep as the body or another such comment follows.

    Args:
        source: The text of the module.
        node: The `if`.
        blank: Whether blank lines above belong to it as well.
    """
    own_lines = node.body[0].lineno > node.lineno
    inner = source.indentation(source.span(node.body[0])[0])
    index = found = source.position(source.span(node.body[-1])[1])[0]
    while _is_blank(source, index) or _is_comment(source, index, 0):
        if own_lines and not _is_blank(source, index) and _line(source, index).startswith(inner):
            found = index + 1
        index += 1
    while not blank and _is_blank(source, found):
        found += 1
    return source.line_starts[found]


def _line(source: Source, index: int) -> str:
    """Return a line by its index, counted from 0: empty before the first and after the last."""
    if not 0 <= index < len(source.line_starts):
        return ""
    return source.text[source.line_starts[index] : _line_start(source, index + 1)]


def _line_start(source: Source, index: int) -> int:
    return source.line_starts[index] if index < len(source.line_starts) else len(source.text)


def _next_line(source: Source, offset: int) -> int:
    """Return where the line after the one of an offset begins."""
    return _line_start(source, source.position(offset)[0])


def _is_blank(source: Source, index: int) -> bool:
    line = _line(source, index)
    return bool(line) and not line.strip()


def _is_comment(source: Source, index: int, depth: int) -> bool:
    """Return whether a line is a comment that is indented at least so much."""
    line = _line(source, index)
    return line.lstrip().startswith("#") and _width(line) >= depth


def _same_depth(source: Source, one: int, other: int) -> bool:
    return _width(_line(source, one)) == _width(_line(source, other))


def _width(line: str) -> int:
    return len(line[: len(line) - len(line.lstrip(" \t"))].expandtabs(8))


def _ends_its_lines(source: Source, statement: ast.stmt) -> bool:
    """Return whether a statement has its lines to itself, but for a comment or a semicolon."""
    start, end = source.span(statement)
    line_start = source.line_starts[statement.lineno - 1]
    return not source.text[line_start:start].strip() and _LINE_REST.match(source.text, end) is not None


def _is_elif_of(source: Source, node: ast.If) -> bool:
    """Return whether the branch after the body of an `if` is an `elif`."""
    following = node.orelse[0]
    return isinstance(following, ast.If) and is_elif(source, following)


# -- notebooks ---------------------------------------------------------------------------------------------


def _is_shown(source: Source, statement: ast.stmt) -> bool:
    """Return whether a notebook shows the value of a statement, since it is the last of a cell."""
    return not statement.col_offset and _has_value(statement) and _ends_cell(source, statement)


def _has_value(statement: ast.stmt) -> bool:
    """Return whether a statement is an expression that a notebook would show."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
    return call is not None and not name.startswith(_WITHOUT_VALUE)


def _ends_cell(source: Source, statement: ast.stmt) -> bool:
    return _AT_CELL_END.match(source.text, source.span(statement)[1]) is not None


# -- LibCST ------------------------------------------------------------------------------------------------


def _on_statement(
    source: Source,
    start: int,
    change: Callable[[cst.BaseStatement], _Lines],
    *,
    after_if: bool = False,
) -> Callable[[str], str]:
    """Return a function from text to text that parses a statement, changes it and writes it out again.

    Args:
        source: The text of the module.
        start: Where the statement starts.
        change: A function that returns the statements that replace it, and lines of comment after them.
        after_if: Whether the statement is an `elif`. It is then the second clause of what `change` gets.
    """
    indentation, newline = source.indentation(start), source.newline
    header = f"if 1:{newline}" if indentation else ""
    before = f"{header}{indentation}" + (f"if 1: pass{newline}{indentation}" if after_if else "")

    def rewrite(text: str) -> str:
        import libcst as cst

        module = parse_module(f"{before}{text}{newline}")
        outer = cst.ensure_type(module.body[0], cst.If) if header else None
        block = cst.ensure_type(outer.body, cst.IndentedBlock) if outer else module
        body, footer = change(block.body[0])  # type: ignore[arg-type]
        block = block.with_changes(body=body, footer=[*footer, *block.footer])
        if outer:
            module = module.with_changes(body=[outer.with_changes(body=block)])
        else:
            module = block
        return module.code.removeprefix(before).removesuffix(newline)

    return rewrite
