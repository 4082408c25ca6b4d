"""Loops over a number of GPUs, and the lists that are made of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.tree import Tree
from devicefix.facts.values import last_name


def iterated(tree: Tree, node: ast.AST) -> Iterator[ast.expr]:
    """Yield what the loops around a node iterate over, in statements and comprehensions."""
    for child, parent in tree.ancestors(node):
        match parent:
            case ast.For(body=body, iter=iterated) if child in body:
                yield iterated
            case ast.comprehension(ifs=tests, iter=iterated) if child in tests:
                yield iterated
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                inner = parent.generators.index(child) if isinstance(child, ast.comprehension) else None
                yield from (each.iter for each in parent.generators[:inner])


def made_of(tree: Tree, call: ast.Call) -> ast.expr | None:
    """Return the list that is made of a range, or the range itself."""
    made: ast.AST | None = call
    parent = tree.parents.get(call)
    if isinstance(parent, ast.comprehension):
        made = parent = tree.parents.get(parent)
        parent = tree.parents.get(parent)
    if isinstance(parent, ast.Call) and last_name(parent.func) in ("list", "tuple"):
        made = parent
    return made if isinstance(made, ast.expr) else None


def is_needed(tree: Tree, call: ast.Call) -> bool:
    """Return whether an error follows a loop over `range(…)` that leaves the function in its body."""
    loop = tree.parents.get(call)
    if last_name(call.func) != "range" or not isinstance(loop, ast.For):
        return False
    after = [*loop.orelse, *tree.after(loop)][:1]
    leaves = isinstance(loop.body[-1], (ast.Return, ast.Break))
    return leaves and bool(after) and isinstance(after[0], (ast.Raise, ast.Assert))


def is_zero(node: ast.AST) -> bool:
    """Return whether a node is the literal 0."""
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 0
