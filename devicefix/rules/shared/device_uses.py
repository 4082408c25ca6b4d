"""Devices that the CPU can't simply replace: the program takes their number, or tells them apart."""

from __future__ import annotations

import ast

from devicefix.devices.context import Context
from devicefix.facts import Facts
from devicefix.facts.flow.forwards import Use
from devicefix.facts.flow.needs import need_of, needs_of
from devicefix.facts.flow.parameters import argument_at
from devicefix.facts.flow.taken_numbers import number_taken, uses_of
from devicefix.facts.names import Names
from devicefix.facts.refused_devices import is_refused
from devicefix.facts.values import cpu, last_name
from devicefix.model import Finding


def checked_for_uses(context: Context, device: ast.expr, finding: Finding) -> Finding:
    """Return a finding with an unsafe fix, and the reason, if the program takes the device's number or needs CUDA.

    Args:
        context: the context of the module.
        device: the device, or its name, that the fix replaces by the CPU if CUDA is not available.
        finding: the finding of the device.
    """
    if finding.fix is None:
        return finding
    uses = list(uses_of(context.forwards, context.forwards.of(device)))
    checks = [context.facts.tree.statement(use).lineno for use in uses if is_refused(context.facts, use)]
    taken = number_taken(context.forwards, device)
    merged = next(filter(None, (merges(context.facts, each) for each in (device, *uses))), "")
    if merged:
        why = merged
    elif taken is not None:
        why = f"line {taken.lineno} needs the device index"
    elif checks:
        why = f"line {min(checks)} does not allow the CPU"
    elif (function := _taking_function(context, uses, Use.CPU_REFUSED)) is not None:
        why = f"`{function}` does not allow the CPU"
    elif (function := _taking_function(context, uses, Use.INDEXED)) is not None:
        why = f"`{function}` needs the device index"
    elif Use.INDEXED in needs_of(context.forwards, context.forwards.of(device)):
        why = "another file needs the device index"
    else:
        return finding
    return finding.unsafe(why)


def merges(facts: Facts, device: ast.expr) -> str:
    """Return why a device beside others must not become the same as one of them, empty where it can.

    Args:
        facts: the facts of the module.
        device: a device or its name, or a variable that holds it.
    """
    parent = facts.tree.parents.get(device)
    match parent:
        case ast.Set() | ast.SetComp():
            return "without CUDA, this element may equal the CPU, so the set has one element fewer"
        case ast.Dict(keys=[_, _, *_] as keys) if device in keys:
            return "without CUDA, this key may equal another one, and then replaces its entry"
        case ast.List(elts=elements) | ast.Tuple(elts=elements) if facts.once(_holds_cpu, elements):
            return "the list already contains the CPU"
    return ""


def _holds_cpu(facts: Names, elements: list[ast.expr]) -> bool:
    return any(cpu(facts, each) for each in elements)


def _taking_function(context: Context, uses: list[ast.expr], need: Use) -> str | None:
    """Return the name of a function of another file that needs a device of some uses to be another than the CPU."""
    needing = (use for use in uses if need in need_of(context.forwards, use))
    calls = (argument_at(context.facts.tree, use) for use in needing)
    return next((last_name(found[0].func) for found in calls if found is not None), None)
