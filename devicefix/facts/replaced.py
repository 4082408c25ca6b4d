"""Find devices that the program itself replaces right below where there is no CUDA."""

from __future__ import annotations

import ast

from devicefix.facts.module import Facts
from devicefix.facts.scopes import dotted


def is_replaced(facts: Facts, value: ast.expr) -> bool:
    """Return whether the statement below a variable replaces the device that it is bound to without CUDA."""
    parent = facts.tree.parents.get(value)
    if not isinstance(parent, ast.Assign):
        return False
    following = facts.tree.block(parent)[facts.tree.position(parent) + 1 :]
    match following[:1]:
        case [ast.If(test=test, body=[ast.Assign(targets=[target])])]:
            same = dotted(target) is not None and dotted(target) == dotted(parent.targets[0])
            return same and facts.guards.implies(test, False)
    return False
