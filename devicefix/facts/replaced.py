"""Find devices that the program itself replaces where there is no CUDA, before it uses them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import partial

from devicefix.facts.guards import truth
from devicefix.facts.module import Facts
from devicefix.facts.scopes import dotted, with_defaults
from devicefix.facts.texts import text_of
from devicefix.facts.tree import walk

_CONVERSIONS = ("torch.device", "str")


def is_replaced(facts: Facts, value: ast.expr) -> bool:
    """Return whether the statements below a variable, or a default, replace its device without CUDA."""
    parent = facts.tree.parents.get(value)
    match parent:
        case ast.Assign(targets=[target]):
            path, following = dotted(target) or "", _following(facts, parent)
        case ast.arguments() if isinstance(function := facts.tree.parents[parent], ast.FunctionDef):
            path = next(each.arg for each, default in with_defaults(parent) if default is value)
            following = iter(function.body)
        case _:
            return False
    for statement in following if path else ():
        match statement:
            case ast.If(test=test, body=body, orelse=[]) if _binds(body[-1], path) or _returns(body, path):
                if truth(test, partial(_of_part, facts, path)) is True:
                    return True
                if _reads(body, path):
                    return False
            case ast.Assign(targets=[target], value=ast.IfExp(test=test, body=one, orelse=other)) if (
                dotted(target) == path
            ):
                without = facts.guards.without_cuda(test)
                return without is not None and not _reads([one if without else other], path)
            case ast.Assign(targets=[target], value=given) if (name := dotted(target)) and _is_same(
                facts, given, path
            ):
                path = name
            case _ if _reads([statement], path):
                return False
    return False


def _following(facts: Facts, statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements below one in its block, and below the conditions around it."""
    yield from facts.tree.after(statement)
    around = facts.tree.parents.get(statement)
    if isinstance(around, ast.If):
        yield from _following(facts, around)


def _of_part(facts: Facts, path: str, part: ast.expr) -> bool | None:
    """Return the value of a part of a test where a device is one of CUDA, and CUDA is not available."""
    match part:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            if path in (dotted(left), (dotted(left) or "").removesuffix(".type")):
                return True if any((text_of(each) or "").startswith("cuda") for each in walk(right)) else None
        case (
            ast.Compare(left=text, ops=[ast.In()], comparators=[owner])
            | ast.Call(func=ast.Attribute(attr="startswith", value=owner), args=[text])
        ) if dotted(owner) == path:
            return True if text_of(text) == "cuda" else None
    return facts.guards.without_cuda(part)


def _binds(statement: ast.stmt, path: str) -> bool:
    return isinstance(statement, ast.Assign) and path in map(dotted, statement.targets)


def _returns(body: Sequence[ast.stmt], path: str) -> bool:
    return isinstance(body[-1], ast.Return) and not _reads(body, path)


def _is_same(facts: Facts, given: ast.expr, path: str) -> bool:
    """Return whether a value is a device, or made of it: `torch.device(name)`."""
    if isinstance(given, ast.Call) and len(given.args) == 1 and facts.call(given, *_CONVERSIONS):
        given = given.args[0]
    return dotted(given) == path


def _reads(nodes: Sequence[ast.AST], path: str) -> bool:
    reads = (each for node in nodes for each in walk(node) if dotted(each) == path)
    return any(isinstance(getattr(read, "ctx", None), ast.Load) for read in reads)
