"""Edits of whole statements: put one under a guard, take a guard away, drop a branch, remove or replace one.

What changes is an operation, which LibCST carries out. What goes away whole is not parsed: its lines are cut.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from devicefix.facts import Facts, Scope
from devicefix.files.notebook.markers import CELL_END
from devicefix.files.text import Source, parse
from devicefix.model import Edit, Effect, Removal
from devicefix.rewrite.lines import (
    alone,
    begins_line,
    else_start,
    end_of,
    ends_its_lines,
    lines_of,
    next_line,
    part_of_line,
)
from devicefix.rewrite.operations import BecomeElse, Conditional, Guard, KeepBranch

_ELSE = re.compile(r"(?:\s|#[^\r\n]*[\r\n])*else\b")  # below comments
_AT_CELL_END = re.compile(rf"(?:\s|#[^\r\n]*[\r\n])*{CELL_END}")
_WITHOUT_VALUE = (
    "set_", "reset_", "synchronize", "init", "ipc_collect", "empty_cache", "manual_seed",
)  # fmt: skip
_PURE = (
    ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Tuple, ast.List,
    ast.expr_context, ast.boolop, ast.cmpop, ast.unaryop,
)  # fmt: skip
_WEAKER = (ast.IfExp, ast.Lambda, ast.NamedExpr, ast.Yield, ast.YieldFrom)
_WIDTH = 79  # of a line that any formatter accepts
_USUAL_INDENT = "    "


# -- under a guard -----------------------------------------------------------------------------------------


def put_under_guard(facts: Facts, statement: ast.stmt, test: str) -> Edit:
    """Return the edit that puts a statement under `if test:`, or makes it `statement if test else None`.

    The latter is for an expression that shares its line with other statements, or whose value a notebook
    shows. Where the whole body of an `if` gets the guard, it becomes a part of its test.

    Args:
        facts: The facts of the module.
        statement: The statement.
        test: The code of the guard's test.
    """
    source = facts.source
    start, end = source.span(statement)
    around = _in_condition(facts, statement, test)
    if not alone(source, statement) or _is_shown(source, statement, statement):
        assert isinstance(statement, (ast.Expr, ast.Assign))
        return Edit(*source.span(statement.value), Conditional(test, "None"), removal=around)
    operation = Guard(_counted_indentation(source, start), source.newline, test, indent_of(facts, statement))
    return Edit(start, end, operation, effect=Effect(added=("If",), deeper=True), removal=around)


def _in_condition(facts: Facts, statement: ast.stmt, test: str) -> Removal | None:
    """Return how a guard joins the test of the `if` around, or its `else`.

    It does not if the `if` has other branches, or a long line.
    """
    source, parent = facts.source, facts.tree.parents[statement]
    if not isinstance(parent, ast.If) or (facts.tree.block(statement) is parent.body and parent.orelse):
        return None
    if parent.orelse:
        starts = tuple(source.span(each)[0] for each in parent.orelse)
        found = _ELSE.match(source.text, else_start(source, parent))
        effect = Effect(added=("If",), below=starts)
        elif_ = Edit(found.end() - len("else"), found.end(), f"elif {test}", effect=effect) if found else None
        return Removal(starts[0], len(starts), elif_) if elif_ else None
    start, end = source.span(parent.test)
    own_lines = "\n" in source.text[start:end] and source.text[:start].rstrip().endswith("(")
    gap = source.newline + source.indentation(end) if own_lines else " "
    instead = Edit(start, end, lambda code: f"{operand(code)}{gap}and {operand(test)}")
    room = _WIDTH - source.line_end(end) + source.line_starts[source.position(end)[0] - 1]
    removal = Removal(source.span(parent.body[0])[0], len(parent.body), instead)
    return removal if own_lines or len(f" and {test}") <= room else None


def operand(code: str) -> str:
    """Return the code of an operand of `and`, in brackets if it needs them."""
    node = ast.parse(f"({code})", mode="eval").body
    weaker = isinstance(node, _WEAKER) or isinstance(getattr(node, "op", None), ast.Or)
    return f"({code})" if weaker else code


def choose(facts: Facts, statement: ast.stmt, test: str, *otherwise: str) -> tuple[Edit, ...]:
    """Return the edits that put a statement under `if test:`, and other expressions under its `else:`.

    Args:
        facts: The facts of the module.
        statement: An expression, or the assignment of one to what is the other expression.
        test: The code of the test.
        otherwise: The code of the other expressions.
    """
    guard = put_under_guard(facts, statement, test)
    if isinstance(guard.new, Conditional):
        both = otherwise[0] if len(otherwise) == 1 else f"({', '.join(otherwise)})"
        return (replace(guard, new=Conditional(test, both), removal=None),)
    if isinstance(statement, ast.Assign):
        return (guard,)
    return replace(guard, removal=None), guarded_below(facts, statement, "else:", otherwise)


def guarded_below(facts: Facts, statement: ast.stmt, header: str, code: Sequence[str], *added: str) -> Edit:
    """Return the edit that adds statements under a header, such as `else:`, below another one.

    Args:
        facts: The facts of the module.
        statement: The statement above, which has its lines for itself.
        header: The code of the header.
        code: The new statements, each on one line.
        added: The kind of the statement that the header begins, if it begins one.
    """
    outer, end = facts.source.indentation(facts.source.span(statement)[0]), end_of(facts.source, statement)
    indent = outer + indent_of(facts, statement)
    lines = ("", f"{outer}{header}", *(f"{indent}{each}" for each in code))
    kinds = (*added, *(type(parse(each).body[0]).__name__ for each in code))
    return Edit(end, end, facts.source.newline.join(lines), effect=Effect(added=kinds))


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
    return not is_elif(source, node) and begins_line(source, node.body[0])


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
    shown = _is_shown(source, node, branch[-1])
    operation = KeepBranch(_counted_indentation(source, start), source.newline, branch is node.orelse, shown)
    return Edit(start, end, operation, effect=Effect(removed=tuple(removed)))


def _as_else(source: Source, node: ast.If) -> Edit:
    """Return the edit that makes the last `elif` of an `if` its `else`, and takes away the old one."""
    (start, _), end = source.span(node), end_of(source, node)
    removed = (start, start + len("elif")), (else_start(source, node), end)
    operation = BecomeElse(_counted_indentation(source, start), source.newline)
    return Edit(start, end, operation, effect=Effect(removed=removed))


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
        # The test can be left out if it only reads names and compares.
        is_pure = all(isinstance(node, _PURE) for node in ast.walk(parent.test))
        if block is parent.body and not parent.orelse and is_pure:
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


def _is_elif_of(source: Source, node: ast.If) -> bool:
    """Return whether the branch after the body of an `if` is an `elif`."""
    following = node.orelse[0]
    return isinstance(following, ast.If) and is_elif(source, following)


# -- notebooks ---------------------------------------------------------------------------------------------


def _is_shown(source: Source, statement: ast.stmt, last: ast.stmt) -> bool:
    """Return whether a notebook shows the value of the last part of a statement, which then ends a cell."""
    ends_cell = _AT_CELL_END.match(source.text, source.span(statement)[1]) is not None
    return not statement.col_offset and _has_value(last) and ends_cell


def _has_value(statement: ast.stmt) -> bool:
    """Return whether a statement is an expression that a notebook would show."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
    return call is not None and not name.startswith(_WITHOUT_VALUE)
