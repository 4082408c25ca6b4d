"""Devices that the CPU can't simply replace: the program takes their number, or tells them apart."""

from __future__ import annotations

import ast

from devicefix.devices.context import Context
from devicefix.facts import Facts
from devicefix.facts.flow.forwards import Followed, Use
from devicefix.facts.flow.needs import needs_of
from devicefix.facts.flow.taken_numbers import number_taken, uses_of
from devicefix.facts.names import Names
from devicefix.facts.refused_devices import is_refused
from devicefix.facts.values import cpu
from devicefix.model import Finding


def checked_for_uses(context: Context, device: ast.expr, finding: Finding) -> Finding:
    """Return a finding with an unsafe fix, and the reason, if the program takes the device's number or needs CUDA.

    Args:
        context: the context of the module.
        device: the device, or its name, that the fix replaces by the CPU if CUDA is not available.
        finding: the finding of the device.
    """
    if finding.fix is None or "distinguishes this device" in finding.fix.why:
        return finding
    followed = context.forwards.of(device)
    uses = list(uses_of(context.forwards, followed))
    found = Followed(uses=uses, variables=followed.variables)
    checks = [context.facts.tree.statement(use).lineno for use in uses if is_refused(context.facts, use)]
    taken = number_taken(context.forwards, device)
    merged = next(filter(None, (merges(context.facts, each, device) for each in (device, *uses))), "")
    if merged:
        why = merged
    elif taken is not None:
        why = f"line {taken.lineno} needs the device index"
    elif checks:
        why = f"line {min(checks)} does not allow the CPU"
    elif Use.CPU_REFUSED in (needs := needs_of(context.forwards, found)):
        why = "another file does not allow the CPU"
    elif Use.INDEXED in needs:
        why = "another file needs the device index"
    elif Use.TOLD_APART in needs:
        why = (
            "another file distinguishes this device from another one, but after the fix, both can be the CPU"
        )
    else:
        return finding
    return finding.unsafe(why)


def merges(facts: Facts, device: ast.expr, origin: ast.expr | None = None) -> str:
    """Return why a device beside others must not become the same as one of them, empty where it can.

    Args:
        facts: the facts of the module.
        device: a device or its name, or a variable that holds it.
        origin: the device that a finding shows, if it may be on another line.
    """
    parent = facts.tree.parents.get(device)
    is_here = origin is None or origin.lineno == device.lineno
    this, at = ("this", "") if is_here else ("the", f" on line {device.lineno}")
    match parent:
        case ast.Set() | ast.SetComp():
            return f"on a CPU, {this} element{at} may equal another one, so the set may have fewer elements"
        case ast.Dict(keys=[_, _, *_] as keys) if device in keys:
            return f"on a CPU, {this} key{at} may equal another one and replace its entry"
        case ast.List(elts=elements) | ast.Tuple(elts=elements) if facts.once(_holds_cpu, elements):
            return f"the {type(parent).__name__.lower()}{at} already contains the CPU"
    return ""


def _holds_cpu(facts: Names, elements: list[ast.expr]) -> bool:
    return any(cpu(facts, each) for each in elements)
