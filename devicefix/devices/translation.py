"""The edits that make calls of torch.cuda those of their counterparts, each made once."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.accelerator import QUESTIONS, Accelerator
from devicefix.devices.choose import Devices
from devicefix.devices.counterparts import Counterpart
from devicefix.devices.device_types import OF_CUDA, DeviceTypes
from devicefix.facts import Facts
from devicefix.model import Edit, Fix, Need

_STREAMS = ("Stream", "Event")


class Translation:
    """The translation of a module's code from CUDA to any accelerator.

    Args:
        facts: The module's facts.
        devices: The module's devices.
        accelerator: What any accelerator supports.

    Attributes:
        planned: The references to torch.cuda, and the devices, that a fix translates, or leaves under a guard
            for CUDA.
    """

    def __init__(self, facts: Facts, devices: Devices, accelerator: Accelerator) -> None:
        self.planned: set[ast.AST] = set()
        self.types = DeviceTypes(facts, devices)
        self._accelerator = accelerator
        self._devices = devices
        self._facts = facts
        self._source = facts.source

    def inside(self, site: ast.AST) -> Fix:
        """Return the fix that translates what gets a guard for the target, nothing where that asks for CUDA.

        Args:
            site: The node that gets the guard.
        """
        references = [node for node in self._accelerator.references(site) if node not in self.planned]
        if self._accelerator.only_cuda(site) is not None:
            self.planned.update(references)
            return Fix(())
        return Fix(()).joined(*(self.call(node) for node in references if self._is_translated(node)))

    def call(self, node: ast.expr) -> Fix:
        """Return the fix that makes a reference, which is called or decorates, that to its counterpart.

        Args:
            node: The reference, such as `torch.cuda.synchronize`; it has a counterpart.
        """
        self.planned.add(node)
        counterpart, call = self._accelerator.counterpart(node), self._facts.tree.call_of(node)
        assert counterpart is not None
        short = self._accelerator.reference(node) or ""
        torch = self._devices.torch(node)
        name = Edit(*self._source.span(node), f"{torch.text}.{counterpart.name}")
        if call is None and short not in OF_CUDA:
            return Fix((name,), needs=torch.needs)
        if call is None:
            return self._decorated(node, name, torch.needs)
        if short == "stream":
            return self._entered(call)
        if short in OF_CUDA:
            return Fix((name,), needs=torch.needs).joined(self.types.fix(call, OF_CUDA[short]))
        needs: set[Need] = set(torch.needs)
        edits = (name, *self._arguments(call, short, counterpart), *self._of_devices(call, needs))
        return Fix(edits, needs=frozenset(needs))

    def _decorated(self, node: ast.expr, name: Edit, needs: frozenset[Need]) -> Fix:
        """Return the fix of a decorator that is not called, such as `@torch.cuda.amp.custom_fwd`."""
        kind, more = self.types.of(node)
        end = self._source.span(node)[1]
        return Fix((name, Edit(end, end, f"(device_type={kind})")), needs=needs | more)

    def _is_translated(self, node: ast.AST) -> bool:
        """Return whether a reference is translated where it gets a guard; a question has its own fix."""
        is_asked = self._accelerator.reference(node) in QUESTIONS
        return not is_asked and self._accelerator.counterpart(node) is not None

    def _arguments(self, call: ast.Call, short: str, counterpart: Counterpart) -> Iterator[Edit]:
        """Yield the edits that fit the arguments of a call to its counterpart."""
        bracket = self._source.text.index("(", self._source.span(call.func)[1])
        if short == "Event" and call.args:
            yield Edit(bracket, bracket + 1, "(enable_timing=")
        elif short not in _STREAMS and not counterpart.name.startswith("get_device_module"):
            for keyword in call.keywords:
                yield Edit(self._source.span(keyword)[0], self._source.span(keyword.value)[0], "")

    def _of_devices(self, call: ast.Call, needs: set[Need]) -> Iterator[Edit]:
        """Yield the edits that replace the devices among the arguments of a call by the accelerator."""
        for value in (*call.args, *(keyword.value for keyword in call.keywords)):
            accelerated = self._devices.accelerated(value) if value not in self.planned else None
            if accelerated is not None:
                self.planned.add(value)
                needs |= accelerated[0].needs
                yield Edit(*self._source.span(value), accelerated[1])

    def _entered(self, call: ast.Call) -> Fix:
        """Return the fix that enters a stream directly, and `contextlib.nullcontext()` on a CPU."""
        (stream,) = call.args
        (start, end), (first, last) = self._source.span(call), self._source.span(stream)
        if self._facts.is_guarded(call):
            return Fix((Edit(start, first, ""), Edit(last, end, "")))
        use = self._devices.available(call)
        otherwise = f" if {use.text} else contextlib.nullcontext()"
        needs = use.needs | self._devices.imports("contextlib", call)
        return Fix((Edit(start, first, ""), Edit(last, end, otherwise)), needs=needs)
