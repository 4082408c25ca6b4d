"""Removal of imports that a fix leaves unused."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from devicefix.facts import Facts
from devicefix.model import Edit, Effect
from devicefix.rewrite.lines import alone, next_line

_AROUND = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Import = ast.Import | ast.ImportFrom


def without_import(facts: Facts, name: str, gone: Iterable[ast.AST]) -> tuple[Edit, ...]:
    """Return the edits that remove the import of a name, if the name is used nowhere else.

    The import stays if it may have another purpose: inside a `try` or an `if`, with a comment, as an explicit
    re-export (`import a as a`), or if a string of the module contains the name, as `__all__` does.

    Args:
        facts: the facts of the module.
        name: the name that the import binds.
        gone: nodes that a fix removes or replaces.

    Returns:
        One edit, or none if the import stays.
    """
    source, tree = facts.source, facts.tree
    removed = {node for top in gone for node in ast.walk(top)}
    nodes = [node for node in ast.walk(tree.module) if node not in removed]
    imports = [node for node in nodes if isinstance(node, _Import) and name in map(_bound, node.names)]
    if len(imports) != 1 or any(_uses(node, name) for node in nodes):
        return ()
    (statement,) = imports
    start, end = source.span(statement)
    text = source.text[start : source.line_end(end)]
    kept = [alias for alias in statement.names if _bound(alias) != name]
    renamed = any(alias.asname == alias.name for alias in statement.names)
    single = len(statement.names) - len(kept) == 1
    if renamed or not single or "#" in text or not isinstance(tree.parents[statement], _AROUND):
        return ()
    if kept:
        at = [*map(_bound, statement.names)].index(name)
        starts, ends = zip(*map(source.span, statement.names), strict=True)
        is_last = at == len(kept)
        return (Edit(ends[at - 1], ends[at], "") if is_last else Edit(starts[at], starts[at + 1], ""),)
    if len(tree.block(statement)) == 1 or not alone(source, statement):
        return (Edit(start, end, "pass", effect=Effect(added=("Pass",), removed=((start, end),))),)
    first, after = source.line_starts[statement.lineno - 1], next_line(source, end)
    lines = source.text[first:after]
    effect = Effect(removed=((start, end),))
    # What is inserted below the import stays.
    return (Edit(first, after, lambda text: text.replace(lines, "", 1), effect=effect),)


def _bound(alias: ast.alias) -> str:
    """Return the name that an alias of an import binds."""
    return alias.asname or alias.name.partition(".")[0]


def _uses(node: ast.AST, name: str) -> bool:
    """Return whether a node reads or binds a name, or is a string that holds it."""
    if isinstance(node, ast.Name):
        return node.id == name
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return name in node.names
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.search(rf"\b{re.escape(name)}\b", node.value) is not None
    return False
