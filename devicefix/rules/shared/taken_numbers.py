"""Devices whose number the program takes, so that the CPU can't replace them."""

from __future__ import annotations

import ast

from devicefix.devices.context import Context
from devicefix.facts.flow.steps import Variable
from devicefix.facts.flow.taken_numbers import number_taken
from devicefix.model import Finding
from devicefix.rules.shared.refusals import passed_to, refusing, refusing_function


def checked_for_uses(context: Context, device: ast.expr, finding: Finding) -> Finding:
    """Return a finding with an unsafe fix, and the reason, if the program takes the device's number or needs CUDA.

    Args:
        context: the context of the module.
        device: the device, or its name, that the fix replaces by the CPU if CUDA is not available.
        finding: the finding of the device.
    """
    if finding.fix is None:
        return finding
    taken = number_taken(context.forwards, device)
    if taken is not None:
        why = f"line {taken.lineno} needs the device index"
    elif (check := refusing(context, device)) is not None:
        why = f"line {check.lineno} does not allow the CPU"
    elif (function := refusing_function(context, device)) is not None:
        why = f"`{function}` does not allow the CPU"
    elif (taker := _taking_function(context, device)) is not None:
        why = f"`{taker}` needs the device index"
    elif any(_is_number_taken(context, variable) for variable in context.forwards.of(device).variables):
        why = "another file needs the device index"
    else:
        return finding
    return finding.unsafe(why)


def _taking_function(context: Context, device: ast.expr) -> str | None:
    """Return the name of a function of another file that takes the number of a device that it gets, or None."""
    for name, place in passed_to(context, device):
        if context.project.takes_number_of(context.devices.path, name, place):
            return name.rpartition(".")[2]
    return None


def _is_number_taken(context: Context, variable: Variable) -> bool:
    """Return whether another file takes the number of a device that a variable holds."""
    takes = context.project.takes_number(context.devices.path, variable.name) if variable.elsewhere else False
    return takes and context.is_read_elsewhere(variable)
