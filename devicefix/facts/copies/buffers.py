"""Buffers of a module that are changed in place."""

from __future__ import annotations

import ast

from devicefix.facts.copies.changes import targets
from devicefix.facts.module import Facts

_NO_GRADIENTS = ("torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad")


def changed_buffer(facts: Facts, name: str) -> ast.Attribute | None:
    """Return a use of a buffer that changes it in place where gradients are recorded, or None."""
    for node in facts.tree.nodes_with(name):
        for target, _ in targets(facts, node):
            use = target
            while isinstance(use, ast.Subscript):
                use = use.value
            if isinstance(use, ast.Attribute) and use.attr == name and not _without_gradients(facts, use):
                return use
    return None


def _without_gradients(facts: Facts, use: ast.expr) -> bool:
    """Return whether an expression is evaluated where no gradients are recorded."""
    for _, parent in facts.tree.ancestors(use):
        asked = [item.context_expr for item in parent.items] if isinstance(parent, ast.With) else []
        asked += getattr(parent, "decorator_list", ())
        if any(facts.resolve(getattr(each, "func", each)) in _NO_GRADIENTS for each in asked):
            return True
    return False
