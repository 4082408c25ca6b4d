"""New code from old: LibCST for expressions, so that comments and line breaks inside them survive."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst as cst

    from devicefix.model import Edit


_NEXT_LINE = re.compile(r"[ \t]*(#[^\r\n]*)?(\r\n|\r|\n)(?P<indentation>[ \t]*)")
_DEEP = 300  # LibCST's parser overflows its stack, which is the end of the process, somewhere behind 2,000
_LEVEL = re.compile(r"[^\w\s]|\b(?:and|or|not|if|lambda|await|yield)\b")  # each level needs one of these


class ConflictError(Exception):
    """Two edits overlap without one being inside the other."""


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits that may nest: inner ones first, outer ones to the result.

    Raises:
        ConflictError: two edits cross, or replace the same characters.
    """
    parts, at = [], 0
    for start, end, new in resolved(text, edits):
        parts += [text[at:start], new]
        at = end
    return "".join([*parts, text[at:]])


def resolved(text: str, edits: Iterable[Edit]) -> list[tuple[int, int, str]]:
    """Edits as plain ones, in order, those inside others made part of them: start, end and new text of each.

    Raises:
        ConflictError: two edits cross, or replace the same characters.
    """
    ordered = _joined(text, sorted(edits, key=lambda edit: (edit.start, edit.start < edit.end, -edit.end)))
    found: list[tuple[int, int, str]] = []
    index = 0
    while index < len(ordered):
        edit = ordered[index]
        if found and edit.start < found[-1][1]:
            raise ConflictError
        inner, index = _apply(text, ordered, index + 1, edit.start, edit.end)
        found.append((edit.start, edit.end, edit.new if isinstance(edit.new, str) else edit.new(inner)))
    return found


def _joined(text: str, edits: list[Edit]) -> list[Edit]:
    """Neighbours that are put under the same guard share it."""
    joined: list[Edit] = []
    before: Edit | None = None
    for edit in edits:
        if edit.guard is not None:
            if before is not None and before.guard == edit.guard and _follows(text, before, edit):
                assert edit.under is not None
                edit = replace(edit, new=edit.under)
            before = edit
        joined.append(edit)
    return joined


def _follows(text: str, before: Edit, edit: Edit) -> bool:
    """Whether an edit's statement stands on the line after another's, in the same block."""
    between = _NEXT_LINE.fullmatch(text, before.end, edit.start)
    line = text.rfind("\n", 0, before.start) + 1
    line = max(line, text.rfind("\r", line, before.start) + 1)
    return between is not None and between["indentation"] == text[line : before.start]


def _apply(text: str, edits: list[Edit], index: int, start: int, end: int) -> tuple[str, int]:
    parts = []
    at = start
    while index < len(edits) and edits[index].start < end:
        edit = edits[index]
        if edit.start < at or edit.end > end:
            raise ConflictError
        parts.append(text[at : edit.start])
        inner, index = _apply(text, edits, index + 1, edit.start, edit.end)
        parts.append(edit.new if isinstance(edit.new, str) else edit.new(inner))
        at = edit.end
    parts.append(text[at:end])
    return "".join(parts), index


def on_call(change: Callable[[cst.Call], cst.Call]) -> Callable[[str], str]:
    """A text-to-text function that parses a call, changes it and writes it out again."""

    def rewrite(text: str) -> str:
        import libcst as cst

        module, call = _parsed(text)
        assert isinstance(call, cst.Call)
        return module.code_for_node(change(call))

    return rewrite


def _parsed(text: str) -> tuple[cst.Module, cst.BaseExpression]:
    """An expression, which may span lines, and a module that holds it and has its line ends.

    Raises:
        RecursionError: it is nested so deeply that LibCST could end the process.
    """
    import libcst as cst

    if may_be_too_deep(text) and any(too_deep(ast.parse(f"({text}\n)"))):
        raise RecursionError("nested too deeply for LibCST")
    # Inside parentheses it may span lines; they are taken off again.
    try:
        module = cst.parse_module(f"({text}\n)")
    except cst.ParserSyntaxError as problem:
        if len(text) <= _DEEP:
            raise
        raise RecursionError from problem  # thousands of strings in a row
    statement = cst.ensure_type(module.body[0], cst.SimpleStatementLine)
    expression = cst.ensure_type(statement.body[0], cst.Expr).value
    return module, expression.with_changes(lpar=expression.lpar[1:], rpar=expression.rpar[:-1])


def may_be_too_deep(text: str) -> bool:
    """Whether there is enough in a text that it could be nested too deeply for LibCST."""
    return len(text) > _DEEP and len(_LEVEL.findall(text)) > _DEEP


def too_deep(module: ast.Module) -> Iterator[ast.expr]:
    """The expressions of a module that are nested too deeply for LibCST, where each `and` is a level."""
    nodes = list(ast.walk(module))
    heights: dict[ast.AST, int] = {}
    for node in reversed(nodes):
        inside = max(map(heights.__getitem__, ast.iter_child_nodes(node)), default=0)
        heights[node] = inside + (len(node.values) if isinstance(node, ast.BoolOp) else 1)
        if isinstance(node, ast.expr) and heights[node] > _DEEP:
            yield node


def receiver_of(text: str) -> str:
    """The code of `x` in that of `x.method(...)`."""
    code = ""

    def read(call: cst.Call) -> cst.Call:
        import libcst as cst

        nonlocal code
        assert isinstance(call.func, cst.Attribute)
        code = cst.Module([]).code_for_node(call.func.value)
        return call

    on_call(read)(text)
    return code


def moved(device: str) -> Callable[[str], str]:
    """`x.cuda(1, True)` as `x.to(device, non_blocking=True)`: every argument but the device survives."""

    def change(call: cst.Call) -> cst.Call:
        import libcst as cst

        _, target = _parsed(device)
        given = next((arg for i, arg in enumerate(call.args) if _is(arg, i, 0, "device")), None)
        rest = [arg for arg in call.args if arg is not given]
        rest = [_named(arg, "non_blocking") if arg.keyword is None and not arg.star else arg for arg in rest]
        if given is None:
            comma = (
                cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")) if rest else cst.MaybeSentinel.DEFAULT
            )
            first = cst.Arg(target, comma=comma)
        else:
            first = given.with_changes(value=target, keyword=None, equal=cst.MaybeSentinel.DEFAULT)
        args = [first, *rest]
        return _renamed(call, "to").with_changes(args=args)

    return on_call(change)


def _is(arg: cst.Arg, index: int, position: int, name: str) -> bool:
    if arg.star:
        return False
    return index == position if arg.keyword is None else arg.keyword.value == name


def _named(arg: cst.Arg, name: str) -> cst.Arg:
    import libcst as cst

    nothing = cst.SimpleWhitespace("")
    equal = cst.AssignEqual(whitespace_before=nothing, whitespace_after=nothing)
    return arg.with_changes(keyword=cst.Name(name), equal=equal)


def _renamed(call: cst.Call, name: str) -> cst.Call:
    import libcst as cst

    assert isinstance(call.func, cst.Attribute)
    return call.with_changes(func=call.func.with_changes(attr=cst.Name(name)))


def with_keyword(name: str, value: str) -> Callable[[str], str]:
    """A call with one keyword argument more, behind the last that it has (but before `**kwargs`)."""

    def change(call: cst.Call) -> cst.Call:
        import libcst as cst

        added = _named(cst.Arg(_parsed(value)[1]), name)
        args = list(call.args)
        at = next((i for i, arg in enumerate(args) if arg.star == "**"), len(args))
        separator = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        if at < len(args):
            return call.with_changes(args=[*args[:at], added.with_changes(comma=separator), *args[at:]])
        if args:
            last = args[-1]
            if isinstance(last.comma, cst.Comma):  # the call ends in a comma: go on doing so
                before = args[-2].comma if len(args) > 1 else separator
                if not isinstance(before, cst.Comma):
                    before = separator
                added = added.with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
                args[-1] = last.with_changes(comma=before)
            else:
                added = added.with_changes(whitespace_after_arg=last.whitespace_after_arg)
                args[-1] = last.with_changes(comma=separator, whitespace_after_arg=cst.SimpleWhitespace(""))
        return call.with_changes(args=[*args, added])

    return on_call(change)
