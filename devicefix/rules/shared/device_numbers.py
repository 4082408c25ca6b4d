"""Variables that hold the number of a GPU and are used as a device."""

from __future__ import annotations

import ast

from devicefix.devices.context import Context
from devicefix.facts import Facts
from devicefix.facts.flow.kinds import NUMBERS
from devicefix.facts.flow.settled import bound_as_device, is_device, is_settled
from devicefix.facts.scopes import Scope
from devicefix.facts.values import last_name


def is_fixed_where_bound(context: Context, use: ast.expr) -> bool:
    """Return whether a use of the number of a GPU needs no fix, since that of its binding makes it the CPU.

    Args:
        context: the context of the module.
        use: the use.
    """
    enabled = context.options.enabled
    if "DF205" in enabled and defined_as_device(context, use) is not None:
        return True
    if not isinstance(use, (ast.Name, ast.Attribute)) or not {"DF202", "DF205", "DF401"} <= enabled:
        return False
    return not NUMBERS.isdisjoint(context.facts.kinds.of(use).seen) and is_settled(context.forwards, use)


def defined_as_device(context: Context, name: ast.expr) -> ast.expr | None:
    """Return the number that a variable is bound to, if all its uses take a device as well, else None.

    Args:
        context: the context of the module.
        name: a use of the variable, or the target of its assignment.
    """
    facts = context.facts
    moved = facts.once(_passed_as_devices, facts.tree.root)
    if not isinstance(name, (ast.Name, ast.Attribute)) or last_name(name) not in moved:
        return None
    several = "DF203" not in context.options.enabled and len(context.forwards.variable(name).bindings) > 1
    return None if several else bound_as_device(context.forwards, name)


def _passed_as_devices(facts: Facts, _module: Scope) -> frozenset[str]:
    """Return the names that are used as a device anywhere: few are, and all of them are found in one pass."""
    nodes = facts.tree.nodes_with(".to", "device", "map_location")
    reads = (node for node in nodes if isinstance(node, (ast.Name, ast.Attribute)))
    return frozenset(last_name(node) for node in reads if is_device(facts, node))
