"""Calls whose device type is CUDA, by an argument or by default, and their fixes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from devicefix.devices.choose import Devices
from devicefix.facts import Facts
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.parameters import unpacks
from devicefix.facts.texts import text_of
from devicefix.model import Edit, Finding, Fix, Need
from devicefix.rewrite.blocks import operand
from devicefix.rewrite.operations import AddKeyword, Chain


@dataclass(frozen=True, slots=True)
class Typed:
    """A function with an argument for the type of a device.

    Attributes:
        name: The argument's name.
        place: Its place among the arguments, -1 if it is passed by keyword only.
        is_default: Whether the type is CUDA's if none is passed.
        enabled: The place of the argument that turns the function off, None if it has none.
        old: The names of the arguments that the function for CUDA has instead, in their order.
    """

    name: str = "device_type"
    place: int = 0
    is_default: bool = False
    enabled: int | None = None
    old: tuple[str, ...] = ()


_AUTOCAST, _SCALER = Typed(enabled=2), Typed("device", is_default=True, enabled=5)
# Their defaults: https://docs.pytorch.org/docs/2.13/amp.html
TYPED = {
    "torch.autocast": _AUTOCAST,
    "torch.amp.autocast": _AUTOCAST,
    "torch.amp.autocast_mode.autocast": _AUTOCAST,
    "torch.GradScaler": _SCALER,
    "torch.amp.GradScaler": _SCALER,
    "torch.amp.grad_scaler.GradScaler": _SCALER,
    "torch.amp.custom_fwd": Typed(place=-1),
    "torch.amp.custom_bwd": Typed(place=-1),
    "torch.is_autocast_enabled": Typed(is_default=True),
}
# By their names in torch.cuda.
OF_CUDA = {
    "amp.autocast": Typed(enabled=0, old=("enabled", "dtype", "cache_enabled")),
    "amp.GradScaler": Typed("device", enabled=4),
    "amp.custom_fwd": Typed(place=-1),
    "amp.custom_bwd": Typed(place=-1),
}


class DeviceTypes:
    """The types of devices that a module passes to functions.

    Args:
        facts: The module's facts.
        devices: The module's devices.
    """

    def __init__(self, facts: Facts, devices: Devices) -> None:
        self._facts = facts
        self._devices = devices
        self._source = facts.source

    def is_cuda(self, call: ast.Call, typed: Typed) -> bool:
        """Return whether a call is for CUDA, by an argument or by default."""
        given = argument_of(call, typed.name, typed.place)
        return typed.is_default and not unpacks(call) if given is None else text_of(given) == "cuda"

    def fix(self, call: ast.Call, typed: Typed) -> Fix:
        """Return the fix that makes the device type of a call the accelerator's; it is off on a CPU.

        Args:
            call: The call, for which `is_cuda` is true, or one of a function for CUDA.
            typed: The function.
        """
        given = argument_of(call, typed.name, typed.place) if not typed.old else None
        new, on, needs = self._new(call, typed)
        edits = (
            [Edit(*self._source.span(given), new)] if given is not None else [self._first(call, typed, new)]
        )
        edits += self._named(call, typed)
        if on:
            edits += self._enabled(call, typed, on)
        return Fix(tuple(edits), needs=needs)

    def with_type(self, call: ast.Call, finding: Finding) -> Finding:
        """Return the finding of a call whose fix also passes the accelerator's type."""
        assert finding.fix is not None
        code, needs = self.of(call, otherwise='"cpu"')
        edit = Edit(*self._source.span(call), AddKeyword("device_type", code))
        fix = replace(finding.fix, edits=(*finding.fix.edits, edit), needs=finding.fix.needs | needs)
        return replace(finding, fix=fix)

    def kept(self, call: ast.Call) -> Fix:
        """Return the fix of `fork_rng()`; torch.cpu has no random states, and those of MPS have no number."""
        code, needs = self.of(call, otherwise='"cpu"')
        question = self._devices.beyond_mps(call)
        devices = self._source.quoted(f"None if {question.text} else []")
        added = (AddKeyword("devices", devices), AddKeyword("device_type", code))
        return Fix((Edit(*self._source.span(call), Chain(added)),), needs=needs | question.needs)

    def of(
        self, site: ast.expr, *, is_exact: bool = False, otherwise: str = '"cuda"'
    ) -> tuple[str, frozenset[Need]]:
        """Return the code of the accelerator's type, and what it needs.

        Args:
            site: The node that it is for.
            is_exact: Whether it must be CUDA's without an accelerator; else it is the CPU's there, if the
                module has a device or a fix can define one.
            otherwise: The code of the type without an accelerator where there is no such device.
        """
        known = None if is_exact else self._devices.text(site)
        if known is not None:
            return known[0](), known[1].needs
        use = self._devices.either(site, self._devices.device_type(site), otherwise)
        return use.text, use.needs

    def _new(self, call: ast.Call, typed: Typed) -> tuple[str, str, frozenset[Need]]:
        """Return the code of the type, that of whether the function is on, and what both need."""
        code, needs = self.of(call, is_exact=typed.enabled is not None and unpacks(call))
        on = self._source.quoted(f'{code} != "cpu"') if typed.enabled is not None else ""
        return code, "" if " if " in code else on, needs

    def _first(self, call: ast.Call, typed: Typed, new: str) -> Edit:
        """Return the edit that inserts a type in front of all other arguments."""
        bracket = self._source.text.index("(", self._source.span(call.func)[1])
        space = "" if self._source.text[bracket + 1] in "\r\n" else " "
        name = f"{typed.name}=" if typed.place < 0 else ""
        more = f",{space}" if call.args or call.keywords else ""
        return Edit(bracket + 1, bracket + 1, f"{name}{new}{more}")

    def _named(self, call: ast.Call, typed: Typed) -> Iterator[Edit]:
        """Yield the edits that pass arguments by name whose place is another one."""
        for name, each in zip(typed.old, call.args, strict=False):
            start = self._source.span(each)[0]
            yield Edit(start, start, f"{name}=")

    def _enabled(self, call: ast.Call, typed: Typed, on: str) -> Iterator[Edit]:
        """Yield the edits that turn a function off on a CPU."""
        assert typed.enabled is not None
        enabled = argument_of(call, "enabled", typed.enabled)
        match enabled:
            case None:
                yield Edit(*self._source.span(call), AddKeyword("enabled", on))
            case ast.Constant(value=True):
                yield Edit(*self._source.span(enabled), on)
            case ast.Constant():
                return
            case _ if not self._facts.guards.implies(enabled):
                yield Edit(*self._source.span(enabled), lambda code: f"{operand(code)} and {on}")
