"""Devices whose number the program takes, so that the CPU can't replace them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.facts.flow.parameters import argument_at
from devicefix.facts.flow.steps import Variable
from devicefix.facts.flow.taken_numbers import number_taken
from devicefix.facts.refused_devices import is_refused
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
    why = _why(context, device)
    return finding if why is None else finding.unsafe(why)


def _why(context: Context, device: ast.expr) -> str | None:
    """Return why the CPU may not replace a device, None if it may."""
    taken = number_taken(context.forwards, device)
    if taken is not None:
        return f"line {taken.lineno} needs the device index"
    uses = list(_uses(context, device))
    refused = [use for use in uses if is_refused(context.facts, use)]
    if refused:
        first = min(refused, key=lambda use: (use.lineno, use.col_offset))
        return f"line {context.facts.tree.statement(first).lineno} does not allow the CPU"
    passed = list(_passed(context, uses))
    for asked, lacks in (
        (context.project.refuses_cpu, "does not allow the CPU"),
        (context.project.takes_number_of, "needs the device index"),
    ):
        for name, place in passed:
            if asked(context.devices.path, name, place):
                return f"`{name.rpartition('.')[2]}` {lacks}"
    if any(_is_number_taken(context, variable) for variable in context.forwards.of(device).variables):
        return "another file needs the device index"
    return None


def _passed(context: Context, uses: list[ast.expr]) -> Iterator[tuple[str, int | str]]:
    """Yield the imported functions that get a device, by their full names, each with the place of the argument."""
    for use in uses:
        call, place = argument_at(context.facts.tree, use) or (None, None)
        name = context.facts.resolve(call.func) if call is not None else None
        if name is not None and place is not None:
            yield name, place


def _uses(context: Context, device: ast.expr) -> Iterator[ast.expr]:
    """Yield the uses of a device, and those of `torch.device(name)` of its name."""
    for use in context.forwards.of(device).uses:
        yield use
        call = context.facts.tree.parents.get(use)
        if isinstance(call, ast.Call) and use in call.args and context.facts.call(call, "torch.device"):
            yield from context.forwards.of(call).uses


def _is_number_taken(context: Context, variable: Variable) -> bool:
    """Return whether another file takes the number of a device that a variable holds."""
    takes = context.project.takes_number(context.devices.path, variable.name) if variable.elsewhere else False
    return takes and context.is_read_elsewhere(variable)
