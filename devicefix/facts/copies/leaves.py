"""Parameters of a module, which an optimizer changes."""

from __future__ import annotations

import ast

from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.values import last_name


def is_parameter(node: ast.expr) -> bool:
    """Return whether an expression is a call of `nn.Parameter` that requires gradients, or moves one."""
    while isinstance(node, ast.Call):
        if last_name(node.func) == "Parameter":
            required = argument_of(node, "requires_grad", 1)
            return not (isinstance(required, ast.Constant) and required.value is False)
        if not isinstance(node.func, ast.Attribute):
            return False
        node = node.func.value
    return False
