"""Variables that hold the number of a GPU and are used as a device."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from devicefix.devices.context import Context
from devicefix.facts import Binding, Facts
from devicefix.facts.effects import has_effects
from devicefix.facts.flow.kinds import NUMBERS
from devicefix.facts.flow.settled import bound_as_device, is_settled
from devicefix.facts.scopes import Scope

_KEYWORDS = {"device", "map_location"}
_PRINTS = {"print", "info", "debug", "warning"}
_DEVICE = re.compile(r"cuda(:\d+)?|cpu")


def is_fixed_where_bound(context: Context, use: ast.expr) -> bool:
    """Return whether a use of the number of a GPU needs no fix, since that of its binding makes it the CPU.

    Args:
        context: the context of the module.
        use: the use.
    """
    enabled = context.options.enabled
    if "DF205" in enabled and defined_as_device(context, use) is not None:
        return True
    if not isinstance(use, (ast.Name, ast.Attribute)) or not {"DF202", "DF401"} <= enabled:
        return False
    return not NUMBERS.isdisjoint(context.facts.kinds.of(use).seen) and is_settled(context.forwards, use)


def defined_as_device(context: Context, name: ast.expr) -> ast.expr | None:
    """Return the number that a variable is bound to, if all its uses take a device as well, else None.

    On a CPU such a variable can be the CPU; then its uses need no change. Those in other files are not known. Where
    it is also bound to the name of a device, that binding is fixed as well, or needs no fix.

    Args:
        context: the context of the module.
        name: a use of the variable, or the target of its assignment.
    """
    if isinstance(name, ast.Attribute):
        return bound_as_device(context.forwards, name)
    if not isinstance(name, ast.Name) or name.id not in context.facts.once(
        _passed_as_devices, context.facts.tree.root
    ):
        return None
    found = context.facts.tree.scope(name).lookup(name.id)
    if found is None or name.id in context.facts.tree.declared_elsewhere:
        return None
    if len(found[1]) != 1 and "DF203" not in context.options.enabled:
        return None
    number = context.facts.once(_only_number, found[1])
    value = None if number is None else number.value
    if value is None or found[0].is_class:
        return None
    taken = context.facts.once(_is_only_a_device, found[1], name.id)
    if (
        not taken
        or context.facts.is_guarded(value)
        or context.is_read_elsewhere(context.forwards.variable(name))
    ):
        return None
    return value


def _only_number(_facts: Facts, bindings: Sequence[Binding]) -> Binding | None:
    """Return the only binding of a variable that does not name a device, or None."""
    numbers = [
        binding
        for binding in bindings
        if not (isinstance(binding.node, ast.Assign) and _names_device(binding.value))
    ]
    return numbers[0] if len(numbers) == 1 else None


def _names_device(value: ast.expr | None) -> bool:
    """Return whether a value is the name of a device: `"cuda"`, `"cuda" if torch.cuda.is_available() else "cpu"`."""
    match value:
        case ast.IfExp(body=body, orelse=orelse):
            return _names_device(body) and _names_device(orelse)
        case ast.Constant(value=str(text)):
            return _DEVICE.fullmatch(text) is not None
    return False


def _is_only_a_device(facts: Facts, bindings: Sequence[Binding], name: str) -> bool:
    """Return whether a variable holds a number, is used as a device, and as nothing else but in calls of CUDA."""
    number = facts.once(_only_number, bindings)
    if number is None or not _is_plain_number(facts, number):
        return False
    found = facts.tree.scope(number.node).lookup(name)
    reads = facts.reads_in(found[0], name) if found is not None else ()
    devices = [read for read in reads if _is_device(facts, read)]
    return bool(devices) and all(read in devices or _takes_either(facts, read) for read in reads)


def _is_plain_number(facts: Facts, binding: Binding) -> bool:
    """Return whether an assignment to one name binds it to a number, and has no other effect."""
    node, value = binding.node, binding.value
    if value is None or not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    return len(node.targets) == 1 and facts.kinds.of(value).are(NUMBERS) and not has_effects(facts, value)


def _passed_as_devices(facts: Facts, _module: Scope) -> frozenset[str]:
    """Return the names that are used as a device anywhere: few are, and all of them are found in one pass."""
    nodes = facts.tree.nodes_with(".to", "device", "map_location")
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name) and _is_device(facts, node))


def _is_device(facts: Facts, read: ast.expr) -> bool:
    """Return whether a use takes a device: `.to(x)`, `device=x`, `{"device": x}`, `torch.device(x)`."""
    parent = facts.tree.parents.get(read)
    match parent:
        case ast.Call(func=ast.Attribute(attr="to"), args=[first, *_]) if first is read:
            return True
        case ast.keyword(arg=keyword):
            return keyword in _KEYWORDS
        case ast.Dict(keys=keys, values=values) if read in values:
            key = keys[values.index(read)]
            return isinstance(key, ast.Constant) and key.value in _KEYWORDS
        case ast.Call(args=[only], keywords=[]) if only is read:
            return facts.resolve(parent.func) == "torch.device"
    return False


def _takes_either(facts: Facts, read: ast.expr) -> bool:
    """Return whether a use needs CUDA, so that it gets a condition of its own, or only prints."""
    parent = facts.tree.parents.get(read)
    match parent:
        case ast.FormattedValue() | ast.keyword(arg="output_device"):
            return True
        case ast.Call(func=ast.Attribute(attr="cuda"), args=[first, *_]) if first is read:
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _PRINTS:
            return True
        case ast.Call():
            return (facts.resolve(parent.func) or "").startswith("torch.cuda.")
        case ast.List(elts=[_]):
            outer = facts.tree.parents.get(parent)
            return isinstance(outer, ast.keyword) and outer.arg == "device_ids"
    return False
