"""Edits of whole statements: put one under a guard, take a guard away, drop a branch, remove or replace one.

What changes is parsed by LibCST, one statement at a time. An indented one is parsed under a header line, so
that comments, strings and continuation lines keep their text, and move with the block that they are in. What
goes away whole is not parsed: its lines are cut.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from devicefix.facts import Facts, Scope
from devicefix.files.notebook.markers import CELL_END
from devicefix.files.text import Source, parse
from devicefix.model import Edit, Effect, Removal
from devicefix.rewrite.lines import (
    alone,
    else_start,
    end_of,
    ends_its_lines,
    lines_of,
    next_line,
    part_of_line,
)
from devicefix.rewrite.parsing import comments_in, parse_expression, parse_module

if TYPE_CHECKING:
    import libcst as cst

    _Lines = tuple[Sequence[cst.BaseStatement], Sequence[cst.EmptyLine]]  # and comments after the last one

_AT_CELL_END = re.compile(rf"(?:\s|#[^\r\n]*[\r\n])*{CELL_END}")
_WITHOUT_VALUE = (
    "set_", "reset_", "synchronize", "init", "ipc_collect", "empty_cache", "manual_seed",
)  # fmt: skip
_PURE = (
    ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Tuple, ast.List,
    ast.expr_context, ast.boolop, ast.cmpop, ast.unaryop,
)  # fmt: skip
_USUAL_INDENT = "    "
_FIRST_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)")


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
    indent = indent_of(facts, statement)

    def guarded(parsed: cst.BaseStatement) -> _Lines:
        import libcst as cst

        return [cst.If(parse_expression(test)[1], cst.IndentedBlock([parsed], indent=indent))], []

    in_libcst = _on_statement(source, start, guarded)

    def new(text: str) -> str:
        if "\n" in text or "\r" in text:
            return in_libcst(text)
        return f"if {test}:{source.newline}{source.indentation(start)}{indent}{text}"  # nothing else moves

    def under(text: str) -> str:
        body = _FIRST_LINE.sub("", new(text), count=1)
        return body.removeprefix(source.indentation(start))

    return Edit(start, end, new, guard=test, under=under, effect=Effect(added=("If",), deeper=True))


def guarded_below(facts: Facts, statement: ast.stmt, test: str, code: str) -> Edit:
    """Return the edit that adds a statement under `if test:` below another one.

    Args:
        facts: The facts of the module.
        statement: The statement above, which has its lines for itself.
        test: The code of the guard's test.
        code: The new statement on one line.
    """
    source = facts.source
    outer = source.indentation(source.span(statement)[0])
    inner = outer + indent_of(facts, statement)
    end = end_of(source, statement)
    text = f"{source.newline}{outer}if {test}:{source.newline}{inner}{code}"
    kind = type(parse(code).body[0]).__name__
    return Edit(end, end, text, effect=Effect(added=("If", kind)))


def indent_of(facts: Facts, statement: ast.stmt) -> str:
    """Return the white space by which a new block in a statement's place is indented.

    It is that of the block that the statement is in, or else that of the module's first block. A block by
    more than four characters is no model: it often had a header that is now a comment.
    """
    source = facts.source
    inner = _counted_indentation(source, source.span(statement)[0])
    if inner:
        header = facts.tree.parents[statement]
        line = header.pattern.lineno if isinstance(header, ast.match_case) else header.lineno  # type: ignore[attr-defined]
        outer = _counted_indentation(source, source.line_starts[line - 1])
        indent = inner.removeprefix(outer)
        if 0 < len(indent) <= len(_USUAL_INDENT):
            return indent
    return facts.once(_first_indent, facts.tree.root)


def _first_indent(facts: Facts, module: Scope) -> str:
    """Return the indentation of the first block of a module, or the usual one."""
    for statement in module.node.body:  # type: ignore[attr-defined]
        block = getattr(statement, "body", None)
        if block and block[0].lineno > statement.lineno:
            return _counted_indentation(facts.source, facts.source.span(block[0])[0]) or _USUAL_INDENT
    return _USUAL_INDENT


def _counted_indentation(source: Source, offset: int) -> str:
    """Return the part of a line's indentation that counts: a form feed starts it anew."""
    return source.indentation(offset).rpartition("\f")[2]


# -- another statement ---------------------------------------------------------------------------------


def replace_statement(source: Source, statement: ast.stmt, code: str) -> Edit:
    """Return the edit that puts other statements in the place of one.

    Args:
        source: The text of the module.
        statement: A statement without blocks.
        code: The new statements on one line, separated by semicolons.
    """
    span = source.span(statement)
    added = tuple(type(node).__name__ for node in parse(code).body)
    return Edit(*span, code, effect=Effect(added=added, removed=(span,)))


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
        return _cut_clause(source, node), Edit(start, start + len("elif"), "if")
    return (_unwrapped(source, node, node.orelse),)


def is_elif(source: Source, node: ast.If) -> bool:
    """Return whether an `if` is the `elif` of another."""
    return source.text.startswith("elif", source.span(node)[0])


def _unwrapped(source: Source, node: ast.If, branch: Sequence[ast.stmt]) -> Edit:
    """Return the edit that puts a branch of an `if` in the place of the whole."""
    start, _ = source.span(node)
    end = end_of(source, node)
    other = (start, else_start(source, node)) if branch is node.orelse else (start, start + len("if"))
    removed = [other]
    if branch is node.body and node.orelse:
        removed.append((else_start(source, node), end))
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

    return Edit(start, end, _on_statement(source, start, unwrapped), effect=Effect(removed=tuple(removed)))


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
        body, footer = [*suite.body], suite.footer
        comments = comments + comments_in(suite.header)
    above = [cst.EmptyLine(comment=comment) for comment in comments]
    first = body[0]
    lines = [*first.leading_lines]  # type: ignore[attr-defined]
    while lines and lines[0].comment is None:
        del lines[0]
    if lines:  # the block may begin with a comment at the beginning of its line
        lines[0] = lines[0].with_changes(indent=True, whitespace=cst.SimpleWhitespace(""))
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
        effect=Effect(removed=((start, start + len("elif")), (else_start(source, node), end))),
    )


# -- what goes away whole ----------------------------------------------------------------------------------


def remove(facts: Facts, statement: ast.stmt) -> Edit:
    """Return the edit that removes a statement, its comments and its lines.

    Where nothing else is in the block, the block goes with it, or gets a `pass`.
    """
    source, block = facts.source, facts.tree.block(statement)
    ends_lines = ends_its_lines(source, statement)
    span = (lines_of if ends_lines else part_of_line)(source, statement, block)
    if span is None:
        alone_in_block = len(block) == 1
        return _emptied(facts, statement, block) if alone_in_block else _replaced_by_pass(source, statement)
    removal = Removal(source.span(block[0])[0], len(block), _emptied(facts, statement, block))
    return Edit(*span, "", effect=Effect(removed=(span,)), removal=removal)


def _emptied(facts: Facts, statement: ast.stmt, block: Sequence[ast.stmt]) -> Edit:
    """Return the edit that removes a statement where nothing else is left in its block."""
    source, parent = facts.source, facts.tree.parents[statement]
    if isinstance(parent, ast.If):
        if block is parent.orelse and not _is_elif_of(source, parent):
            span = else_start(source, parent, blank=True), next_line(source, end_of(source, parent))
            return Edit(*span, "", effect=Effect(removed=(span,)))
        if block is parent.body and not parent.orelse and _has_no_effect(parent.test):
            return _cut_clause(source, parent) if is_elif(source, parent) else remove(facts, parent)
    return _replaced_by_pass(source, statement)


def _replaced_by_pass(source: Source, statement: ast.stmt) -> Edit:
    start, end = source.span(statement)
    if ends_its_lines(source, statement):
        end = end_of(source, statement)
    return Edit(start, end, "pass", effect=Effect(added=("Pass",), removed=((start, end),)))


def _cut_clause(source: Source, node: ast.If) -> Edit:
    """Return the edit that cuts the body of an `if` or `elif` with its test, up to the next clause."""
    end = else_start(source, node) if node.orelse else next_line(source, end_of(source, node))
    span = source.line_starts[node.lineno - 1], end
    return Edit(*span, "", effect=Effect(removed=(span,)))


def _has_no_effect(test: ast.expr) -> bool:
    """Return whether a test can be left out: it only reads names and compares."""
    return all(isinstance(node, _PURE) for node in ast.walk(test))


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
        if not header:
            body, footer = change(module.body[0])
            module = module.with_changes(body=body, footer=[*footer, *module.footer])
        else:
            outer = cst.ensure_type(module.body[0], cst.If)
            block = cst.ensure_type(outer.body, cst.IndentedBlock)
            body, footer = change(block.body[0])
            block = block.with_changes(body=body, footer=[*footer, *block.footer])
            module = module.with_changes(body=[outer.with_changes(body=block)])
        return module.code.removeprefix(before).removesuffix(newline)

    return rewrite
