"""The watch: a mode that sees every call of torch, and updates the ledger."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from devicefix.verify.runtime.copies.arrays import shown_by
from devicefix.verify.runtime.copies.functions import (
    KNOWN,
    Kind,
    is_partial,
    kind_of,
    name_of,
    shows,
    targets_of,
)
from devicefix.verify.runtime.copies.intent import ACCELERATOR, HOST
from devicefix.verify.runtime.copies.ledger import Ledger
from devicefix.verify.runtime.copies.memory import (
    Memory,
    Region,
    Tag,
    address_of,
    version_of,
    watchable,
)
from devicefix.verify.runtime.copies.moves import TORCH, Arguments, Moves, Options
from devicefix.verify.runtime.eager import tensors
from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.site import Sites

# The attributes of an enumeration are slow to look up.
_ASKS, _ALTERS, _DETACHES, _DEVICE = Kind.ASKS, Kind.ALTERS, Kind.DETACHES, Kind.DEVICE
_PLAIN = frozenset((int, float, bool, str, slice, type(None), type(...), torch.dtype, torch.device))

_NONE: Options = {}  # never changed
# Tensors, their memory, their version, and their content before a change of some of it.
Touched = list[tuple[torch.Tensor, Memory, "int | None", "torch.Tensor | None"]]


class Call(NamedTuple):
    """A call of a function of torch."""

    kind: Kind
    func: Callable[..., Any]
    args: Arguments
    kwargs: Options


class Watch(TorchFunctionMode):
    """The mode that follows the tensors that CUDA would have copied.

    Args:
        events: the recorder of events.
        sites: finds the program's own lines.
    """

    def __init__(self, events: Events, sites: Sites) -> None:
        super().__init__()
        self.ledger = Ledger(events, sites)
        self.guarded = self.ledger.reports.guarded
        self._tags = self.ledger.tags
        self._memories = self.ledger.memories
        self._forget = self.ledger.forget
        self._moves = Moves(self.ledger, sites)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Arguments = (), kwargs: Options | None = None
    ) -> Any:
        """Run a call, and record its effect on memory. The mode is off meanwhile."""
        __tracebackhide__ = True  # hides the frame in pytest's tracebacks
        try:
            kind = KNOWN[func]
        except (KeyError, TypeError):  # not known, or not hashable
            kind = kind_of(func)
        if kind is _ASKS:
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = kwargs or _NONE
        if kind > _ALTERS and not (kind is _DETACHES and self._moves.pending is None):
            if kind is not _DEVICE or not sys._getframe(1).f_code.co_filename.startswith(TORCH):
                return self._watched(Call(kind, func, args, kwargs))
        elif "device" in kwargs or (self._memories and self._may_touch(args, kwargs)):
            return self._watched(Call(kind, func, args, kwargs))
        result = func(*args, **kwargs) if kwargs else func(*args)
        if type(result) not in _PLAIN:
            self._tag(args, kwargs, result)
        return result

    def _tag(self, args: Arguments, kwargs: Options, result: Any) -> None:
        """Tag the result of a call that touches no watched memory, if it would be on the accelerator."""
        tags = self._tags
        for value in args:
            if id(value) in tags or (type(value) in (list, tuple) and value and id(value[0]) in tags):
                if id(result) in tags:
                    return
                if type(result) is not torch.Tensor:
                    self.guarded(self._tag_all, result)
                    return
                tag = Tag(result, self._forget)  # inlined from `Ledger.set_side`: most calls come here
                tag.handle = None
                key = tag.key = id(result)
                tags[key] = tag
                return
        if kwargs or _device.CURRENT_DEVICE is not None:
            self.guarded(self._tag_results, args, kwargs, result)

    # Calls that the mode misses

    def applied(self, func: Callable[..., Any], args: Arguments, kwargs: Options) -> Any:
        """Run a call that the mode misses, and record its effect on memory."""
        call = Call(Kind.READS, func, args, kwargs)
        touched = self.guarded(self._touched, call) if self._memories else None
        result = func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            self.guarded(self._after, call, result, touched)
        return result

    def wrapped(self, array: Any, tensor: torch.Tensor) -> None:
        """Record a call of `torch.from_numpy`."""
        with torch._C.DisableTorchFunction():
            self.guarded(self.ledger.arrays.wrap, array, tensor)

    def derived(self, data: Any, result: Any) -> None:
        """Record the creation of a parameter, or of an object of another class, from a tensor."""
        if isinstance(result, torch.Tensor) and result is not data:
            self.guarded(self.ledger.derived, data, result)

    # Calls

    def _may_touch(self, args: Arguments, kwargs: Options) -> bool:
        """Return whether a call has an argument with watched memory."""
        if self.ledger.doubtful:
            self.guarded(self.ledger.settle)
        return bool(self._memories and self.guarded(self._touches, (*args, *kwargs.values())))

    def _touches(self, values: Arguments) -> bool:
        memories = self._memories
        for value in values:
            if isinstance(value, torch.Tensor):
                try:
                    memory = memories.get(address_of(value))
                    if memory is not None and not self.ledger.settled(memory):
                        return True
                except RuntimeError:  # a tensor without a storage, such as a sparse one
                    continue
            elif type(value) in (list, tuple) and self._touches(value):
                return True
        return False

    def _watched(self, call: Call) -> Any:
        __tracebackhide__ = True
        touched = self.guarded(self._touched, call) if self._memories else None
        result = call.func(*call.args, **call.kwargs)
        if call.kind is Kind.MOVES:
            if touched:
                self.guarded(self._follow, call, result, touched)
            moved = self.guarded(self._moves.moved, *call[1:], result)
            return result if moved is None else moved
        self.guarded(self._after, call, result, touched)
        return result

    def _after(self, call: Call, result: Any, touched: Touched | None) -> None:
        """Record the effect of a call that is not a move."""
        kind, _, args, kwargs = call
        if touched:
            self._follow(call, result, touched)
        if kind is Kind.SETS_DATA and len(args) > 1 and args[0] is not args[1]:
            self.ledger.set_side(args[0], HOST)
            self.ledger.derived(args[1], args[0])
        if kind is Kind.DEVICE:
            self._moves.ask(args[0])
            return
        if kind is Kind.DETACHES and self._moves.pending is not None:
            self._moves.chained(args[0], result)
        if not args or result is not args[0]:
            self._tag_results(args, kwargs, result)

    def _touched(self, call: Call) -> Touched:
        """Return the arguments with watched memory, and record reads of those that the call will change."""
        found = []
        for tensor in tensors((*call.args, *call.kwargs.values())):
            try:
                memory = self._memories.get(address_of(tensor))
            except RuntimeError:
                continue
            if memory is not None:
                partial = tensor is call.args[0] if call.args and is_partial(call.func) else False
                before = tensor.detach().clone() if partial else None
                found.append((tensor, memory, version_of(tensor), before))
        if found and call.kind is Kind.WRITES:
            targets = {id(tensor) for tensor in tensors(call.args[:1])}
            for tensor, memory, version, _ in found:
                if id(tensor) in targets:
                    self.ledger.read(tensor, memory, version)
        return found

    def _follow(self, call: Call, result: Any, touched: Touched) -> None:
        """Record the effect of a call on watched memory."""
        kind, func, args, kwargs = call
        targets = {id(tensor) for tensor in tensors(targets_of(kind, func, args, kwargs))}
        copies_itself = _copies_itself(func, args)
        for tensor, memory, version, before in touched:
            if copies_itself:
                if tensor is args[1]:
                    self.ledger.read(tensor, memory, version)
                memory.version = None  # counted without a change
            elif kind in (Kind.ALTERS, Kind.SETS_DATA):
                if tensor is args[0]:
                    self.ledger.alter(tensor, memory)
            elif id(tensor) in targets:
                fills = kind is not Kind.WRITES
                self.ledger.write(tensor, memory, _written(func, args, tensor, before), fills)
            elif version != version_of(tensor):
                self.ledger.read(tensor, memory, version, changed=True)
                self.ledger.write(tensor, memory, Region.of(tensor), fills=False)
            else:
                self._follow_read(call, result, tensor, memory, version)

    def _follow_read(
        self, call: Call, result: Any, tensor: torch.Tensor, memory: Memory, version: int | None
    ) -> None:
        """Record the effect of a call on watched memory that it does not change."""
        kind = call.kind
        if kind is Kind.EXPORTS:
            self.ledger.read(tensor, memory, version)
            if self._views(call.func, tensor, memory, shown_by(result)):
                self.ledger.export(tensor, memory)
            return
        if kind in (Kind.LOOKS, Kind.DEVICE) or (isinstance(result, str) and not shows(call.func)):
            return
        changes = kind in (Kind.WRITES, Kind.FILLS)  # returns what it changes, which may share this memory
        if changes or not self._views(call.func, tensor, memory, result):
            self.ledger.read(tensor, memory, version)

    def _views(self, func: Callable[..., Any], tensor: torch.Tensor, memory: Memory, result: Any) -> bool:
        """Tag the results that are views of a tensor, and return whether there are any."""
        found = False
        replica = self.ledger.replica(tensor, memory)
        for view in tensors(result):
            if watchable(view) and address_of(view) == memory.address:
                found = True
                self.ledger.also_shows(view, tensor, replica, name_of(func) != "data")
        return found

    def _tag_results(self, args: Arguments, kwargs: Options, result: Any) -> None:
        """Tag results that are created on the accelerator, or computed from tensors on it."""
        if not isinstance(result, (torch.Tensor, list, tuple)):
            return
        side = self._moves.meant() if kwargs.get("device") is not None else None
        if side is None:
            side = HOST
            is_set = _device.CURRENT_DEVICE is not None and not isinstance((*args, None)[0], torch.Tensor)
            if is_set or self._on_accelerator((*args, *kwargs.values())):
                side = ACCELERATOR
        if side == ACCELERATOR:
            self._tag_all(result)

    def _on_accelerator(self, values: Iterable[Any]) -> bool:
        """Return whether a tensor among values, or in lists of them, would be on the accelerator."""
        tags = self._tags
        return any(
            self.ledger.side(value) == ACCELERATOR
            if id(value) in tags
            else isinstance(value, (list, tuple)) and self._on_accelerator(value)
            for value in values
        )

    def _tag_all(self, result: Any) -> None:
        for tensor in tensors(result):
            if id(tensor) not in self._tags:
                self.ledger.set_side(tensor, ACCELERATOR)


def _written(
    func: Callable[..., Any], args: Arguments, tensor: torch.Tensor, before: torch.Tensor | None
) -> Region:
    """Return the elements that a call has changed."""
    if name_of(func) == "__setitem__" and tensor is args[0]:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        if all(part is None or part is ... or type(part) in (int, slice) for part in index):
            return Region.of(tensor.detach()[index])
    if before is None:
        return Region.of(tensor)
    now = tensor.detach()
    return Region.of(tensor, (before != now) & ~(before.isnan() & now.isnan()))


def _copies_itself(func: Callable[..., Any], args: Arguments) -> bool:
    """Return whether a call copies a tensor to its own memory: `p.data.copy_(backup)` where both share it."""
    if name_of(func) != "copy_" or len(args) < 2 or not isinstance(args[1], torch.Tensor):
        return False
    target, source = args[:2]
    same = watchable(target) and watchable(source) and address_of(target) == address_of(source)
    return same and Region.of(target) == Region.of(source)
