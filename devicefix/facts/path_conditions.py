"""Path conditions: the tests that decide whether a node is evaluated, with the values that lead to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.scopes import COMPREHENSIONS
from devicefix.facts.tree import Tree

Condition = tuple[ast.expr, bool]


def conditions_on(child: ast.AST, parent: ast.AST) -> Iterator[Condition]:
    """Yield the conditions on which a node evaluates a part of it."""
    match parent:
        case ast.If(test=test, body=body) | ast.While(test=test, body=body):
            if child is not test:
                yield test, child in body
        case ast.IfExp(test=test, body=chosen):
            if child is not test:
                yield test, child is chosen
        case ast.BoolOp(op=op, values=values):
            for value in values:
                if value is child:
                    return
                yield value, isinstance(op, ast.And)
    if isinstance(parent, COMPREHENSIONS) and not isinstance(child, ast.comprehension):
        for generator in parent.generators:
            yield from ((test, True) for test in generator.ifs)


def branches(node: ast.If) -> list[list[ast.stmt]]:
    """Return the blocks of an `if` statement and its `elif` parts; the last one is that of `else`."""
    found, rest = [node.body], node.orelse
    while len(rest) == 1 and isinstance(rest[0], ast.If):
        found.append(rest[0].body)
        rest = rest[0].orelse
    return [*found, rest]


def conditions_around(tree: Tree, node: ast.AST) -> Iterator[Condition]:
    """Yield the conditions of all statements and expressions around a node."""
    for child, parent in tree.ancestors(node):
        yield from conditions_on(child, parent)
