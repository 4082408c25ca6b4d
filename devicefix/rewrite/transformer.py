"""The LibCST transformer that carries out the operations of fixes.

It works on the code that changes, which is parsed by itself. Comments, line breaks and quotes of what stays
are nodes as well, and move along.
"""

from __future__ import annotations

import ast
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import dropwhile
from typing import Any, cast

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

from devicefix.model import New, Operation
from devicefix.rewrite import operations as op
from devicefix.rewrite.depth import MAX_DEPTH, is_too_deep, may_be_too_deep

_Lines = Sequence[cst.EmptyLine]

_NOTHING, _SPACE, _TWO_SPACES = map(cst.SimpleWhitespace, ("", " ", "  "))
_BIND_WEAKER = (cst.IfExp, cst.Lambda, cst.NamedExpr)
_EQUAL = cst.AssignEqual(_NOTHING, _NOTHING)


def transformed(text: str, operations: Sequence[op.Placed]) -> str:
    """Return the code of a node after operations on it, and on expressions inside.

    An indented statement is parsed under a header line: its strings and continuation lines keep their text.

    Args:
        text: The code of the node.
        operations: The operations. The last one is that on the node itself.
    """
    *inner, (outer, _, _) = operations
    before, after = _around(outer) if isinstance(outer, op.StatementOperation) else _brackets(text)
    code = f"{before}{text}{after}"
    module = parse_module(code)
    nodes = {_outermost(module, outer): outer}
    if inner:
        places = {}
        for operation, *offsets in inner:
            start, end = (len(code[: len(before) + offset].encode()) for offset in offsets)
            places[start, end] = operation
        positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(ByteSpanPositionProvider)
        for node in positions:
            if isinstance(node, cst.BaseExpression):
                own = _own_brackets(node)
                first, last = (node.lpar[-1], node.rpar[0]) if own else (node, node)
                place = positions[first].start, positions[last].start + positions[last].length
                if place in places:
                    nodes[node] = places[place]
    code = module.visit(Transformer(module, nodes)).code
    code = code.removeprefix(before).removesuffix(after)
    if isinstance(outer, op.Guard) and outer.joins:
        _, _, code = code.partition(outer.newline)  # the line of the `if`
        return code.removeprefix(outer.indentation)
    return code


def _around(operation: op.StatementOperation) -> tuple[str, str]:
    """Return what a statement needs around it to be parsed at its depth, or as an `elif`."""
    newline, indentation = operation.newline, operation.indentation
    header = f"if 1:{newline}{indentation}" if indentation else ""
    if isinstance(operation, op.BecomeElse):
        header += f"if 1: pass{newline}{indentation}"
    return header, newline


def _outermost(module: cst.Module, operation: Operation) -> cst.CSTNode:
    """Return the node of the last operation."""
    node: Any = module.body[0]
    if not isinstance(operation, op.StatementOperation):
        return cast("cst.BaseExpression", node.body[0].value)
    if operation.indentation:
        node = node.body.body[0]
    return cast("cst.If", node.orelse if isinstance(operation, op.BecomeElse) else node)


class Transformer(cst.CSTTransformer):
    """Carry out operations on the nodes of a tree, the inner ones first.

    Args:
        module: The tree.
        operations: The operations by their nodes.
    """

    def __init__(self, module: cst.Module, operations: Mapping[cst.CSTNode, Operation]) -> None:
        super().__init__()
        self._module = module
        self._operations = operations
        self._below: _Lines = ()  # comments for the end of the block around

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Return whether there may be operations inside a node."""
        return len(self._operations) > 1 or node not in self._operations

    def on_leave(  # type: ignore[override]
        self, original: cst.CSTNode, updated: cst.CSTNode
    ) -> cst.CSTNode | cst.FlattenSentinel[cst.BaseStatement]:
        """Carry out the operation on a node."""
        operation = self._operations.get(original)
        if operation and isinstance(updated, cst.BaseStatement):
            return self._with_statement_changed(operation, updated)
        if operation:
            return self._with_expression_changed(operation, updated)
        if self._below and isinstance(updated, (cst.Module, cst.IndentedBlock)):
            below, self._below = self._below, ()
            return updated.with_changes(footer=[*below, *updated.footer])
        return updated

    def _with_statement_changed(
        self, operation: Operation, node: cst.BaseStatement
    ) -> cst.CSTNode | cst.FlattenSentinel[cst.BaseStatement]:
        match operation, node:
            case op.Guard(test=test, indent=indent), _:
                return cst.If(parse_expression(test), cst.IndentedBlock([node], indent=indent))
            case op.KeepBranch(orelse=orelse, silent=silent), cst.If():
                body, self._below = _branch(node, orelse=orelse, silent=silent)
                return cst.FlattenSentinel(body)
            case op.BecomeElse(), cst.If():
                lines = [cst.EmptyLine(comment=comment) for comment in _comments_of_test(node)]
                return cst.Else(node.body, leading_lines=[*node.leading_lines, *lines])
        raise AssertionError(f"{operation} does not suit {node}")

    def _with_expression_changed(self, operation: Operation, node: cst.CSTNode) -> cst.BaseExpression:
        """Return an expression after an operation, with the brackets around it."""
        if isinstance(operation, op.KeepFirst):
            return self._first(cst.ensure_type(node, cst.IfExp))
        assert isinstance(node, cst.BaseExpression)
        own = _own_brackets(node)
        outer = len(node.lpar) - own
        inside = node.with_changes(lpar=node.lpar[outer:], rpar=node.rpar[:own])
        new = self._changed(operation, inside)
        return new.with_changes(lpar=[*node.lpar[:outer], *new.lpar], rpar=[*new.rpar, *node.rpar[own:]])

    def _changed(self, new: New, node: cst.BaseExpression) -> cst.BaseExpression:
        if isinstance(new, str):
            return parse_expression(new)
        match new, node:
            case op.Move(device), cst.Call():
                return _moved(node, parse_expression(device))
            case op.AddKeyword(name, value), cst.Call():
                return _with_keyword(node, name, parse_expression(value))
            case op.ReplaceFunction(function), cst.Call():
                return node.with_changes(func=parse_expression(function))
            case op.KeepReceiver(), cst.Call(func=cst.Attribute(value=receiver)):
                return receiver
            case op.Conditional(test, otherwise, bracketed), _:
                body = _bracketed(node) if isinstance(node, _BIND_WEAKER) else node
                choice = cst.IfExp(parse_expression(test), body, self._changed(otherwise, node))
                return _bracketed(choice) if bracketed else choice
            case op.Chain(changes), _:
                for each in changes:
                    node = self._changed(each, node)
                return node
        assert not isinstance(new, Operation), f"{new} does not suit {node}"
        return parse_expression(new(self._module.code_for_node(node)))

    def _first(self, choice: cst.IfExp) -> cst.BaseExpression:
        """Return `a` of `a if b else c`, with the comments of the rest before the bracket that ends them."""
        body, left, right = choice.body, [*choice.lpar], [*choice.rpar]
        if not {"\n", "\r"} & {*self._module.code_for_node(body)}:
            body = body.with_changes(lpar=(), rpar=())
        comments = _comments_in(choice)[len(_comments_in(choice.body)) :]
        if comments:
            breaks = [each for each in choice.children if isinstance(each, cst.ParenthesizedWhitespace)]
            if not breaks:
                left, right = [*left, cst.LeftParen()], [cst.RightParen(), *right]
            indentation = breaks[0].last_line if breaks else _NOTHING
            lines = [cst.EmptyLine(indent=False, whitespace=indentation, comment=each) for each in comments]
            first = cst.TrailingWhitespace(_TWO_SPACES, comments[0])
            space = cst.ParenthesizedWhitespace(first, lines[1:], last_line=indentation)
            at = 0 if not breaks else -1
            right[at] = right[at].with_changes(whitespace_before=space)
        return body.with_changes(lpar=[*left, *body.lpar], rpar=[*body.rpar, *right])


def _own_brackets(node: cst.BaseExpression) -> bool:
    """Return whether the inner brackets of an expression are a part of it for `ast`."""
    return isinstance(node, (cst.Tuple, cst.GeneratorExp)) and bool(node.lpar)


def _bracketed(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return an expression with one more pair of brackets around it."""
    return node.with_changes(lpar=[cst.LeftParen(), *node.lpar], rpar=[*node.rpar, cst.RightParen()])


# -- calls -------------------------------------------------------------------------------------------------


def _moved(call: cst.Call, device: cst.BaseExpression) -> cst.Call:
    """Return `x.to(device, non_blocking=True)` for `x.cuda(1, True)`."""
    named = [*map(_keyword, call.args)]
    at = named.index("device") if "device" in named else None
    if call.args and not (named[0] or call.args[0].star):
        at = 0
    arguments = list(call.args)
    for place, (keyword, argument) in enumerate(zip(named, call.args, strict=True)):
        if not (keyword or argument.star):
            arguments[place] = argument.with_changes(keyword=cst.Name("non_blocking"), equal=_EQUAL)
    if at is None:
        comma = cst.Comma(whitespace_after=_SPACE) if arguments else cst.MaybeSentinel.DEFAULT
        arguments.insert(0, cst.Arg(device, comma=comma))
    elif at == 0:
        arguments[0] = call.args[0].with_changes(keyword=None, value=device, equal=cst.MaybeSentinel.DEFAULT)
    else:
        arguments[at] = arguments[at].with_changes(value=device)
    return call.with_changes(func=call.func.with_changes(attr=cst.Name("to")), args=arguments)


def _keyword(argument: cst.Arg) -> str:
    """Return the keyword of an argument as Python reads it, empty if it has none."""
    return unicodedata.normalize("NFKC", argument.keyword.value) if argument.keyword else ""


def _with_keyword(call: cst.Call, name: str, value: cst.BaseExpression) -> cst.Call:
    """Return a call with one more keyword argument, the last one before `**kwargs`."""
    new = cst.Arg(value, cst.Name(name), _EQUAL)
    at = next((place for place, each in enumerate(call.args) if each.star == "**"), len(call.args))
    if at < len(call.args):
        new = new.with_changes(comma=cst.Comma(whitespace_after=_SPACE))
    elif call.args:
        *before, last = call.args
        last, new = _in_order(before, last, new)
        call = call.with_changes(args=[*before, last])
    return call.with_changes(args=[*call.args[:at], new, *call.args[at:]])


def _in_order(before: Sequence[cst.Arg], last: cst.Arg, new: cst.Arg) -> tuple[cst.Arg, cst.Arg]:
    """Return the last argument of a call and a new one behind it, which both get their white space."""
    if not isinstance(last.comma, cst.Comma):
        if isinstance(last.value, cst.GeneratorExp) and not last.value.lpar:
            last = last.with_changes(value=_bracketed(last.value))
        new = new.with_changes(whitespace_after_arg=last.whitespace_after_arg)
        return last.with_changes(whitespace_after_arg=_NOTHING, comma=cst.Comma(whitespace_after=_SPACE)), new
    end = last.comma.whitespace_after
    gap: cst.BaseParenthesizableWhitespace = _SPACE
    if before:
        gap = cst.ensure_type(before[-1].comma, cst.Comma).whitespace_after
    if isinstance(gap, cst.ParenthesizedWhitespace):
        first_line = cst.TrailingWhitespace(newline=gap.first_line.newline)
        gap = gap.with_changes(first_line=first_line, empty_lines=[])
        if isinstance(end, cst.ParenthesizedWhitespace) and end.first_line.comment:
            gap = gap.with_changes(first_line=end.first_line)
            end = end.with_changes(first_line=cst.TrailingWhitespace(newline=end.first_line.newline))
    new = new.with_changes(comma=cst.Comma(whitespace_after=end))
    return last.with_changes(comma=last.comma.with_changes(whitespace_after=gap)), new


# -- statements --------------------------------------------------------------------------------------------


def _branch(
    node: cst.If, *, orelse: bool, silent: bool
) -> tuple[list[cst.BaseStatement], Sequence[cst.EmptyLine]]:
    """Return the statements of a branch for the block around the `if`, and the comments below them.

    Args:
        node: The `if`.
        orelse: Whether it is the `else`, and not the body.
        silent: Whether to keep a notebook from showing the value of the last statement.
    """
    if orelse:
        clause: cst.If | cst.Else = cst.ensure_type(node.orelse, cst.Else)
        comments = [comment for line in clause.leading_lines for comment in _comments_in(line)]
    else:
        clause, comments = node, _comments_of_test(node)
    suite = clause.body
    footer: Sequence[cst.EmptyLine] = ()
    if isinstance(suite, cst.IndentedBlock):
        body, footer = [*suite.body], suite.footer
        comments += _comments_in(suite.header)
    else:
        suite = cst.ensure_type(suite, cst.SimpleStatementSuite)
        body = [cst.SimpleStatementLine(suite.body, trailing_whitespace=suite.trailing_whitespace)]
    above = [cst.EmptyLine(comment=comment) for comment in comments]
    first = body[0]
    lines = [*dropwhile(lambda line: line.comment is None, first.leading_lines)]  # type: ignore[attr-defined]
    if lines:  # the block may begin with a comment at the beginning of its line
        lines[0] = lines[0].with_changes(indent=True, whitespace=_NOTHING)
    body[0] = first.with_changes(leading_lines=[*above, *lines])
    if silent and isinstance(body[-1], cst.SimpleStatementLine):
        *before, last = body[-1].body
        body[-1] = body[-1].with_changes(body=[*before, last.with_changes(semicolon=cst.Semicolon())])
    return body, footer


def _comments_of_test(node: cst.If) -> list[cst.Comment]:
    """Return the comments of the test of an `if`."""
    parts = (node.test, node.whitespace_before_test, node.whitespace_after_test)
    return [comment for part in parts for comment in _comments_in(part)]


# -- parsing -----------------------------------------------------------------------------------------------


def parse_module(text: str) -> cst.Module:
    """Parse the text of a module.

    Raises:
        RecursionError: It is nested so deeply that LibCST could end the process.
    """
    if may_be_too_deep(text) and is_too_deep(ast.parse(text)):
        raise RecursionError("nested too deeply for LibCST")
    try:
        return cst.parse_module(text)
    except cst.ParserSyntaxError as problem:
        if len(text) <= MAX_DEPTH:
            raise
        raise RecursionError from problem  # thousands of strings in a row


@lru_cache(200)  # fixes share their devices and tests
def parse_expression(text: str) -> cst.BaseExpression:
    """Parse an expression, which may span lines.

    Raises:
        RecursionError: It is nested so deeply that LibCST could end the process.
    """
    line = cst.ensure_type(parse_module(text.join(_brackets(text))).body[0], cst.SimpleStatementLine)
    expression = cst.ensure_type(line.body[0], cst.Expr).value
    if any(_brackets(text)):
        expression = expression.with_changes(lpar=expression.lpar[1:], rpar=expression.rpar[:-1])
    return expression


def _brackets(text: str) -> tuple[str, str]:
    """Return the brackets in which an expression may be parsed as a statement; Python allows 200 at most."""
    return ("(", ")") if any(mark in text for mark in ("\n", "\r", ":=")) else ("", "")


def _comments_in(node: cst.CSTNode) -> list[cst.Comment]:
    """Return the comments inside a node, in order."""
    if isinstance(node, cst.Comment):
        return [node]
    return [comment for child in node.children for comment in _comments_in(child)]
