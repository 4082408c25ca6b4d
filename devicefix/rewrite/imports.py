"""Removal of imports that a fix leaves unused."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from devicefix.files.text import Source
from devicefix.model import Edit, Effect
from devicefix.rewrite.lines import alone

_Import = ast.Import | ast.ImportFrom


def without_import(
    source: Source, module: ast.Module, name: str, gone: Iterable[ast.AST]
) -> tuple[Edit, ...]:
    """Return the edits that remove the import of a name, if the name is used nowhere else.

    The import stays if it may have another purpose: inside a `try` or an `if`, with a comment, as an explicit
    re-export (`import a as a`), or if a string of the module contains the name, as `__all__` does.

    Args:
        source: the text of the module.
        module: its syntax tree.
        name: the name that the import binds.
        gone: nodes that a fix removes or replaces.

    Returns:
        One edit, or none if the import stays.
    """
    removed = {node for top in gone for node in ast.walk(top)}
    nodes = [node for node in ast.walk(module) if node not in removed]
    imports = [node for node in nodes if isinstance(node, _Import) and name in map(_bound, node.names)]
    if len(imports) != 1 or any(_uses(node, name) for node in nodes):
        return ()
    (statement,) = imports
    block = next((body for body in _bodies(nodes) if statement in body), [])
    start, end = source.span(statement)
    text = source.text[start : source.line_end(end)]
    kept = [alias for alias in statement.names if _bound(alias) != name]
    if not block or "#" in text or any(alias.asname == alias.name for alias in statement.names):
        return ()
    if len(statement.names) - len(kept) != 1:
        return ()
    if kept:
        return (Edit(start, end, lambda text: _without_alias(text, name)),)
    if len(block) == 1 or not alone(source, statement):
        return (Edit(start, end, "pass", effect=Effect(added=("Pass",), removed=((start, end),))),)
    line, _ = source.position(start)
    last, _ = source.position(end)
    first = source.line_starts[line - 1]
    after = source.line_starts[last] if last < len(source.line_starts) else len(source.text)
    lines = source.text[first:after]
    effect = Effect(removed=((start, end),))
    # What is inserted below the import stays.
    return (Edit(first, after, lambda text: text.replace(lines, "", 1), effect=effect),)


def _bound(alias: ast.alias) -> str:
    """Return the name that an alias of an import binds."""
    return alias.asname or alias.name.partition(".")[0]


def _bodies(nodes: Iterable[ast.AST]) -> Iterable[list[ast.stmt]]:
    """Return the bodies of the module, its functions and its classes."""
    kinds = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return (node.body for node in nodes if isinstance(node, kinds))


def _uses(node: ast.AST, name: str) -> bool:
    """Return whether a node reads or binds a name, or is a string that holds it."""
    if isinstance(node, ast.Name):
        return node.id == name
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return name in node.names
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.search(rf"\b{re.escape(name)}\b", node.value) is not None
    return False


def _without_alias(text: str, name: str) -> str:
    """Return the code of an import without the alias that binds a name."""
    import libcst as cst

    module = cst.parse_module(text)
    line = cst.ensure_type(module.body[0], cst.SimpleStatementLine)
    node = line.body[0]
    assert isinstance(node, (cst.Import, cst.ImportFrom))
    assert not isinstance(node.names, cst.ImportStar)
    kept = [
        alias
        for alias in node.names
        if (alias.evaluated_alias or alias.evaluated_name.partition(".")[0]) != name
    ]
    kept[-1] = kept[-1].with_changes(comma=node.names[-1].comma)
    return module.with_changes(body=[line.with_changes(body=[node.with_changes(names=kept)])]).code
