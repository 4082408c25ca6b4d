"""Code that is nested too deeply for LibCST's parser, which then ends the process."""

from __future__ import annotations

import ast
import re

MAX_DEPTH = 300  # LibCST's parser overflows the stack somewhere above 2,000
_LEVEL = re.compile(r"[^\w\s]|\b(?:and|or|not|if|lambda|await|yield)\b")  # each level needs one of these


def may_be_too_deep(text: str) -> bool:
    """Return whether a text is long enough to be nested too deeply for LibCST."""
    return len(text) > MAX_DEPTH and len(_LEVEL.findall(text)) > MAX_DEPTH


def is_too_deep(module: ast.Module) -> bool:
    """Return whether a module is nested too deeply for LibCST. Each `and` is a level."""
    heights: dict[ast.AST, int] = {}
    for node in reversed(list(ast.walk(module))):
        inside = max(map(heights.__getitem__, ast.iter_child_nodes(node)), default=0)
        heights[node] = inside + (len(node.values) if isinstance(node, ast.BoolOp) else 1)
        if isinstance(node, ast.expr) and heights[node] > MAX_DEPTH:
            return True
    return False
