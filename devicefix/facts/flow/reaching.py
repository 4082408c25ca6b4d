"""Find the bindings of a name that may hold where it is read."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from devicefix.facts.scopes import COMPREHENSIONS, DEFINITIONS, Binding
from devicefix.facts.tree import Tree

BINDINGS = 20  # more of them are not told apart by their order
_CERTAIN = (ast.Import, ast.ImportFrom, *DEFINITIONS, ast.withitem)


def reaching(tree: Tree, site: ast.expr, bindings: Sequence[Binding]) -> Sequence[Binding]:
    """Return the bindings of a name that may hold at a site.

    Args:
        tree: the tree of the module.
        site: where the name is read.
        bindings: all its bindings.
    """
    if not 1 < len(bindings) <= BINDINGS:
        return bindings
    scopes = {tree.scope(binding.node) for binding in bindings if not binding.parameter}
    here = tree.scope(site)
    while isinstance(here.node, COMPREHENSIONS) and here.parent is not None:
        here = here.parent
    if scopes != {here}:
        return bindings
    statement = tree.statement(site)
    around = {id(block) for block in blocks_around(tree, statement)}
    last = next((binding for binding in bindings if binding.parameter), None)
    for binding in bindings:
        node = _place(tree, binding)
        if isinstance(node, ast.stmt) and position(node) < position(statement):
            inside = isinstance(node, (ast.For, ast.AsyncFor)) and id(node.body) in around
            if inside or (_is_certain(binding) and id(tree.block(node)) in around):
                last = binding
    if last is None:
        return bindings
    start = position(_place(tree, last))
    loops = tree.around(statement, ast.For, ast.AsyncFor, ast.While)
    looped = any(position(loop) > start for loop in loops)

    def may_follow(binding: Binding) -> bool:
        node = _place(tree, binding)
        end = statement if isinstance(node, ast.stmt) else site
        return start < position(node) and (looped or position(node) < position(end))

    return [
        binding for binding in bindings if binding is last or (not binding.parameter and may_follow(binding))
    ]


def _place(tree: Tree, binding: Binding) -> ast.AST:
    """Return the node of a binding that has a position: for a part of a `with` statement, that statement."""
    return tree.parents[binding.node] if isinstance(binding.node, ast.withitem) else binding.node


def _is_certain(binding: Binding) -> bool:
    """Return whether a statement binds the name whenever it runs."""
    assigned = isinstance(binding.node, (ast.Assign, ast.AnnAssign)) and binding.node.value is not None
    return assigned or isinstance(binding.node, _CERTAIN)


def blocks_around(tree: Tree, statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the block of a statement, and the blocks around it in the same function."""
    yield tree.block(statement)
    for _, parent in tree.ancestors(statement):
        if isinstance(parent, (*DEFINITIONS, ast.Module)):
            return
        if isinstance(parent, ast.stmt):
            yield tree.block(parent)


def position(node: ast.AST) -> tuple[int, int]:
    """Return the line and column where a node begins; statements can share a line."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
