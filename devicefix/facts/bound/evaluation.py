"""Find what a statement or an expression evaluates, reads and binds whenever it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from devicefix.facts.scopes import COMPREHENSIONS
from devicefix.facts.tree import walk

OF_PROPERTIES = {"getter", "setter", "deleter"}


def evaluated(node: ast.stmt) -> Iterator[ast.AST]:
    """Yield what a statement evaluates itself, without its blocks and what runs later."""
    for name, value in ast.iter_fields(node):
        for part in value if isinstance(value, list) else (value,):
            match part:
                case ast.stmt() | ast.ExceptHandler() if name != "handlers":
                    continue
                case ast.ExceptHandler():
                    yield from filter(None, [part.type])
                case ast.match_case():
                    yield from filter(None, [part.pattern, part.guard])
                case ast.Attribute(attr=attr) if name == "decorator_list" and attr in OF_PROPERTIES:
                    continue
                case ast.Name() | ast.Attribute() if name == "bases":
                    continue  # the methods that are inherited run when those of the class do
                case ast.Lambda() if name == "value" and name_of(node, part) is not None:
                    yield part.args
                case ast.AST():
                    yield part


def always_evaluated(node: ast.expr) -> Iterator[ast.AST]:
    """Yield the parts of an expression that are evaluated whenever it is."""
    todo: list[ast.AST] = [node]
    while todo:
        part = todo.pop()
        yield part
        match part:
            case ast.BoolOp(values=[first, *_]):
                todo.append(first)
            case ast.IfExp(test=test):
                todo.append(test)
            case ast.Compare(left=left, comparators=[first, *_]):
                todo += (left, first)
            case ast.Lambda():
                pass
            case _ if isinstance(part, COMPREHENSIONS):
                todo.append(part.generators[0].iter)
            case _:
                todo.extend(ast.iter_child_nodes(part))


def names_read(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that are read in some nodes."""
    names = (node for root in nodes for node in walk(root) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Load)}


def reads(node: ast.stmt, name: str) -> Iterator[ast.Name]:
    """Yield the places at which a statement, or the head of a compound one, reads a name whenever it runs."""
    match node:
        case ast.If(body=[*_, ast.Raise()]):
            return  # as an `assert`, a fix may remove it
        case (
            ast.If(test=part)
            | ast.While(test=part)
            | ast.Assign(value=part)
            | ast.AugAssign(value=part)
            | ast.AnnAssign(value=ast.expr() as part)
            | ast.Expr(value=part)
            | ast.Return(value=ast.expr() as part)
        ):
            for each in always_evaluated(part):
                if isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Load):
                    yield each


def name_of(parent: ast.AST | None, node: ast.Lambda) -> str | None:
    """Return the name that a lambda is assigned to, None for any other lambda."""
    match parent:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is node:
            return name
    return None
