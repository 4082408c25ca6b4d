"""Devices whose number the program takes, so that the CPU can't replace them."""

from __future__ import annotations

import ast
from dataclasses import replace

from devicefix.devices.context import Context
from devicefix.facts.taken_numbers import number_taken
from devicefix.model import Finding, Safety


def checked_for_number(context: Context, device: ast.expr, finding: Finding) -> Finding:
    """Return a finding with an unsafe fix, and the reason, if the program takes the number of a device.

    Args:
        context: the context of the module.
        device: the device, or its name, that the fix replaces by the CPU if CUDA is not available.
        finding: the finding of the device.
    """
    taken = number_taken(context.uses, device)
    if taken is None or finding.fix is None:
        return finding
    message = f"{finding.message} (line {taken.lineno} needs its number)"
    return replace(finding, message=message, fix=replace(finding.fix, safety=Safety.UNSAFE))
