"""What is known of the program's tensors: which copy each shows, and which copies are behind."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from devicefix.verify.runtime.copies.intent import ACCELERATOR, HOST
from devicefix.verify.runtime.copies.memory import (
    Change,
    Memory,
    Move,
    Place,
    Region,
    address_of,
    between,
    digest,
    owner_of,
    used_elsewhere,
    version_of,
)
from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.site import Site, Sites

_MOST = 16  # changes that a copy keeps, and arrays: what a program does more often, it does at the same lines


class Handle:
    """A tensor object that shows watched memory.

    Attributes:
        place: the copy that it shows.
        counted: whether its version counter is the one that the memory's first tensor has.
        twins: the ids of the tensors that are one object with this one where nothing watches.
        altered: what changed a twin, and so would have changed this object: their move, and the line.
    """

    __slots__ = ("altered", "counted", "place", "twins")

    def __init__(self, place: Place, counted: bool) -> None:
        self.place = place
        self.counted = counted
        self.twins: list[int] = []
        self.altered: tuple[Move, Site] | None = None


class Tag(weakref.ref):  # type: ignore[type-arg]
    """What is known of one tensor object; it goes when the object goes. A host's tensor needs none.

    Attributes:
        key: the object's id.
        handle: what there is to know of watched memory; None for a tensor that is just on the accelerator.
    """

    __slots__ = ("handle", "key")
    key: int
    handle: Handle | None


class Ledger:
    """Keeps the copies that would be there with CUDA.

    Args:
        events: where to write what is found.
        sites: what tells the program's own lines.
    """

    def __init__(self, events: Events, sites: Sites) -> None:
        self.tags: dict[int, Tag] = {}
        self.memories: dict[int, Memory] = {}
        self.forget = self._forgetter()
        self._events = events
        self._sites = sites
        self._of: dict[Place, Memory] = {}
        self._arrays: dict[int, weakref.ref[Any]] = {}
        self._spoiled: list[tuple[weakref.ref[Any], int, int, Move, Site]] = []
        self._reported: set[tuple[Any, ...]] = set()
        self._failed = False
        self._sweep_at = 256

    def guarded(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call something of the watch, whose errors are no business of the program's.

        Args:
            call: what to call.
            args: its arguments.

        Returns:
            its result, None after an error.
        """
        try:
            return call(*args)
        except Exception as error:
            if not self._failed:
                self._failed = True
                self._events.emit("trouble", where="copies", message=f"{type(error).__name__}: {error}")
            return None

    # Tags

    def side(self, value: Any) -> str:
        """Where a tensor is with CUDA."""
        tag = self.tags.get(id(value))
        if tag is None:
            return HOST
        return ACCELERATOR if tag.handle is None else tag.handle.place.side

    def set_side(self, tensor: torch.Tensor, side: str) -> None:
        """A tensor is somewhere, and nothing more is known of it."""
        old = self.tags.pop(id(tensor), None)
        if side == ACCELERATOR:
            tag = self.tags[id(tensor)] = Tag(tensor, self.forget)
            tag.key, tag.handle = id(tensor), None
        self._drop(old)

    def place(self, tensor: torch.Tensor, memory: Memory) -> Place:
        """Which of the copies a tensor shows: the first one, where nothing else is known."""
        handle = self._handle(tensor)
        return handle.place if handle and self._of.get(handle.place) is memory else memory.root

    def show(self, tensor: torch.Tensor, place: Place, counted: bool) -> Handle:
        """A tensor shows one of the copies."""
        tag = Tag(tensor, self.forget)
        tag.key = id(tensor)
        handle = tag.handle = Handle(place, counted)
        place.handles += 1
        old = self.tags.get(tag.key)
        self.tags[tag.key] = tag
        self._drop(old)
        return handle

    def also_shows(self, view: torch.Tensor, tensor: torch.Tensor, place: Place, counted: bool) -> None:
        """A view shows the copy that a tensor shows."""
        if view is not tensor and place.move is not None:
            handle = self._handle(tensor)
            self.show(view, place, counted and handle is not None and handle.counted)

    def derived(self, source: Any, result: torch.Tensor) -> None:
        """A tensor has been made that shows the memory of another."""
        tag = self.tags.get(id(source))
        if tag is not None and tag.handle is not None:
            self.show(result, tag.handle.place, False)
        elif tag is not None:
            self.set_side(result, ACCELERATOR)

    def _handle(self, tensor: torch.Tensor) -> Handle | None:
        tag = self.tags.get(id(tensor))
        return tag.handle if tag is not None else None

    def _drop(self, tag: Tag | None) -> None:
        """A tensor is gone, or shows something else."""
        if tag is None or tag.handle is None:
            return
        place = tag.handle.place
        place.handles -= 1
        memory = self._of.get(place)
        if place.handles or memory is None:
            return
        if place.exported and place.behind and memory.kept(place):
            self._tell(place, place.behind[0])
        memory.remove(place)
        del self._of[place]
        if not memory.others and not memory.root.behind:
            self._leave(memory)

    def _leave(self, memory: Memory) -> None:
        """Watch some memory no longer."""
        for place in memory.others:
            self._of.pop(place, None)
        if self.memories.get(memory.address) is memory:
            del self.memories[memory.address]

    def _forgetter(self) -> Callable[[Tag], None]:
        this = weakref.ref(self)

        def forget(tag: Tag) -> None:
            ledger = this()
            if ledger is not None and ledger.tags.get(tag.key) is tag:
                del ledger.tags[tag.key]
                if tag.handle is not None:
                    ledger.guarded(ledger._drop, tag)

        return forget

    # Moves

    def link(self, source: torch.Tensor, alias: torch.Tensor, here: str, there: str, move: Move) -> Memory:
        """Watch the two sides of a move.

        Args:
            source: what was moved.
            alias: what came of it, another object with the same memory; or the same object, if only NumPy
                has the other side.
            here: where the source is.
            there: where the alias is.
            move: the call.
        """
        address = address_of(alias)
        memory = self.memories.get(address)
        if memory is not None and memory.over:
            self._leave(memory)
            memory = None
        if memory is not None:
            self.read(source, memory, version_of(source))
        else:
            memory = self.memories[address] = Memory(alias, here)
            if len(self.memories) > self._sweep_at:
                self._sweep()
        parent = self.place(source, memory)
        place = memory.copy(there, Region.of(alias), move, parent)
        self._of[place] = memory
        if memory.exposed:
            place.digest = digest(place.region, alias)
        mine = self.show(alias, place, True)
        if source is not alias:
            other = self._handle(source)
            if other is None or other.place is not parent:
                other = self.show(source, parent, True)
            other.twins = mine.twins = other.twins or [id(source)]
            mine.twins.append(id(alias))
        return memory

    def settled(self, memory: Memory) -> bool:
        """Whether some memory has one side left; then it is watched no longer."""
        one = len(memory.others) == 1 and not memory.others[0].behind and not memory.root_lives()
        if one or (not memory.others and memory.over):
            self._leave(memory)
            return True
        return False

    def _sweep(self) -> None:
        """Let go of what has one side left."""
        for memory in list(self.memories.values()):
            self.settled(memory)
        self._sweep_at = max(256, 2 * len(self.memories))

    # Reads and changes

    def read(self, tensor: torch.Tensor, memory: Memory, version: int | None, changed: bool = False) -> None:
        """A tensor is read: the copy that it shows must not be behind.

        Args:
            tensor: the tensor.
            memory: its memory.
            version: the tensor's version before the call that reads it.
            changed: whether the call has changed it by now.
        """
        place, handle = self.place(tensor, memory), self._handle(tensor)
        if handle is not None and handle.altered is not None:
            self.report("tensor", *handle.altered)
            handle.altered = None
        if handle is not None and handle.counted and version is not None:
            if memory.version is not None and version != memory.version:
                self._changed_unseen(memory)
            memory.version = version
        if memory.exposed and not changed:
            self._compare(tensor, memory, place)
        if place.behind:
            region = Region.of(tensor)
            for change in [c for c in place.behind if c.region is None or c.region.overlaps(region)]:
                self._tell(place, change)
                place.behind.remove(change)

    def write(self, tensor: torch.Tensor, memory: Memory, region: Region, fills: bool) -> None:
        """A tensor is changed in place: the other copies that are alive are behind.

        Args:
            tensor: the tensor.
            memory: its memory.
            region: what of it is changed.
            fills: whether nothing is left there of what was before.
        """
        place, handle = self.place(tensor, memory), self._handle(tensor)
        memory.version = version_of(tensor) if handle is not None and handle.counted else None
        if fills:
            place.behind = [c for c in place.behind if c.region is None or not region.covers(c.region)]
        others = [other for other in memory.others if other is not place]
        if place is not memory.root and memory.root_lives():
            others.append(memory.root)
        site: Site | None = None
        for other in others:
            other.digest = None
            if other.exported and other.behind and memory.outlived(other):
                self._tell(other, other.behind[0])
            known = len(other.behind) > _MOST or any(c.covers(region) for c in other.behind)
            if not known and (other.region is None or other.region.overlaps(region)):
                site = site or self._sites.current()
                other.behind.append(Change(site, place, region))
                if other is memory.root and other.exported:
                    self._spoil(tensor, memory, place, site)
        place.digest = None

    def alter(self, tensor: torch.Tensor, memory: Memory) -> None:
        """A tensor is changed itself, not its content: without the watch, its twins would be too."""
        handle = self._handle(tensor)
        if handle is None:
            return
        for key in handle.twins:
            tag = self.tags.get(key)
            twin = tag.handle if tag is not None else None
            if (
                twin is not None
                and twin is not handle
                and twin.twins is handle.twins
                and twin.altered is None
            ):
                move = between(twin.place, handle.place)
                if move is not None:
                    twin.altered = (move, self._sites.current())
                    if address_of(tensor) != memory.address:  # the twin's memory may be watched no longer
                        self.report("tensor", *twin.altered)
        if address_of(tensor) != memory.address:
            self.set_side(tensor, handle.place.side)

    def _changed_unseen(self, memory: Memory) -> None:
        """The version tells of a change that was no call: as gradients are summed up, on the accelerator."""
        places = [memory.root, *memory.others]
        changed = next((place for place in places if place.side == ACCELERATOR), None)
        if changed is not None:
            for place in places:
                if place.side == HOST and not place.behind:
                    place.behind.append(Change(None, changed, None))

    # NumPy's side

    def wrapped(self, array: Any, tensor: torch.Tensor) -> None:
        """An array of NumPy has become a tensor that shows its memory, and so is read."""
        if tensor.untyped_storage().resizable():
            return
        low, high = _bytes_of(tensor)
        for spoiled in [s for s in self._spoiled if s[1] < high and low < s[2]]:
            self._spoiled.remove(spoiled)
            if spoiled[0]() is not None:
                self.report("numpy buffer", *spoiled[3:])
        address, arrays = address_of(tensor), self._arrays

        def gone(reference: weakref.ref[Any]) -> None:
            if arrays.get(address) is reference:
                del arrays[address]

        arrays[address] = weakref.ref(array, gone)

    def export(self, tensor: torch.Tensor, memory: Memory) -> None:
        """NumPy gets hold of what a tensor shows."""
        place = self.place(tensor, memory)
        place.exported = True
        for other in memory.others:
            other.digest = digest(other.region, tensor)

    def _compare(self, tensor: torch.Tensor, memory: Memory, reader: Place) -> None:
        """See whether NumPy has changed memory since it was moved, or last read."""
        for place in [reader] if reader is not memory.root else memory.others:
            now = digest(place.region, tensor)
            before, place.digest = place.digest, now
            if before is None or now is None or before == now:
                continue
            exported = [memory.root, *memory.others] if reader is not memory.root else [place]
            writer = next((p for p in exported if p.exported and p is not reader), None)
            if writer is not None:
                reader.behind.append(Change(None, writer, place.region, True))

    def _spoil(self, tensor: torch.Tensor, memory: Memory, place: Place, site: Site) -> None:
        """The array that a tensor was made of is changed through the tensor."""
        reference, move = self._arrays.get(memory.address), between(memory.root, place)
        if reference is None or move is None or len(self._spoiled) > _MOST * _MOST:
            return
        if used_elsewhere(reference):
            self._spoiled.append((weakref.ref(owner_of(reference())), *_bytes_of(tensor), move, site))

    # Reports

    def finish(self) -> None:
        """Report what is behind still, and may have been read where that can't be seen."""
        for memory in self.memories.values():
            for place in memory.others:
                if place.exported and place.behind and place.move is not None:
                    if memory.outlived(place) or memory.moves[place.move.site] == 1:
                        self._tell(place, place.behind[0])
        for array, _, _, move, site in self._spoiled:
            if array() is not None:
                self.report("numpy buffer", move, site)
        self.clear()

    def clear(self) -> None:
        """Watch nothing of what is there by now."""
        self.memories.clear()
        self._of.clear()
        self._spoiled.clear()

    def report(self, what: str, move: Move, changed: Site | None) -> None:
        """Write down, once, that something goes another way on a CPU than with CUDA.

        Args:
            what: "tensor", "numpy view", "numpy buffer" or "parameter".
            move: what copies with CUDA.
            changed: where the difference comes from, None where it is not known.
        """
        key = (what == "parameter", move.site, changed)
        if key not in self._reported:
            self._reported.add(key)
            self._events.emit(
                "copy", what=what, moved=_shown(move.site), changed=_shown(changed), move=move.text
            )

    def _tell(self, place: Place, change: Change) -> None:
        move = between(place, change.place)
        if move is None:
            return
        from_numpy = change.numpy and change.place.move is None
        exported = place.exported or change.numpy
        self.report(
            "numpy buffer" if from_numpy else "numpy view" if exported else "tensor", move, change.site
        )


def _bytes_of(tensor: torch.Tensor) -> tuple[int, int]:
    region = Region.of(tensor)
    low = tensor.data_ptr()
    return low, low + region.high - region.low


def _shown(site: Site | None) -> dict[str, Any] | None:
    return None if site is None else {"file": site.file, "line": site.line}
