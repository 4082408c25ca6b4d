"""The ledger: which replica each tensor shows, and which replicas are stale."""

from __future__ import annotations

from typing import Any

import torch

from devicefix.verify.runtime.copies.arrays import Arrays, bytes_of, shown_by
from devicefix.verify.runtime.copies.intent import ACCELERATOR, HOST
from devicefix.verify.runtime.copies.memory import (
    Change,
    Handle,
    Memory,
    Move,
    Region,
    Replica,
    Tag,
    address_of,
    between,
    digest,
    shared,
    version_of,
)
from devicefix.verify.runtime.copies.reports import Reports
from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.site import Site, Sites

_MOST = 16  # changes that a replica keeps: further ones are at the same lines


class Ledger:
    """The record of the replicas that would exist with CUDA.

    Args:
        events: the recorder of events.
        sites: finds the program's own lines.

    Attributes:
        tags: the tags of tensors, by the id of the object.
        memories: the watched memory, by address.
        reports: the recorder of copy hazards.
        arrays: the arrays that tensors were created from.
        doubtful: memory whose first tensor is gone, and so perhaps one of its sides.
    """

    def __init__(self, events: Events, sites: Sites) -> None:
        self.tags: dict[int, Tag] = {}
        self.memories: dict[int, Memory] = {}
        self.reports = Reports(events)
        self.arrays = Arrays(self.reports, sites)
        self._sites = sites
        self._of: dict[Replica, Memory] = {}
        self._sweep_at = 256
        self.doubtful: list[Memory] = []

    # Tags

    def side(self, value: Any) -> str:
        """Return where a tensor would be with CUDA: HOST or ACCELERATOR."""
        tag = self.tags.get(id(value))
        if tag is None:
            return HOST
        return ACCELERATOR if tag.handle is None else tag.handle.replica.side

    def set_side(self, tensor: torch.Tensor, side: str) -> None:
        """Set the side of a tensor that shows no watched memory."""
        if side == ACCELERATOR:
            self._tag(tensor, None)
        else:
            self._drop(self.tags.pop(id(tensor), None))

    def _tag(self, tensor: torch.Tensor, handle: Handle | None) -> None:
        """Replace the tag of a tensor."""
        tag = Tag(tensor, self.forget)
        tag.key, tag.handle = id(tensor), handle
        old = self.tags.get(tag.key)
        self.tags[tag.key] = tag
        self._drop(old)

    def replica(self, tensor: torch.Tensor, memory: Memory) -> Replica:
        """Return the replica that a tensor shows: the first one if nothing else is known."""
        handle = self._handle(tensor)
        return handle.replica if handle and self._of.get(handle.replica) is memory else memory.root

    def show(self, tensor: torch.Tensor, replica: Replica, counted: bool) -> None:
        """Tag a tensor as showing a replica.

        Args:
            tensor: the tensor.
            replica: the replica.
            counted: whether it shares its version counter with the first tensor of the memory.
        """
        replica.handles += 1
        self._tag(tensor, Handle(replica, counted))

    def also_shows(self, view: torch.Tensor, tensor: torch.Tensor, replica: Replica, counted: bool) -> None:
        """Tag a view as showing the replica of its tensor.

        Args:
            view: the view.
            tensor: the tensor.
            replica: the replica that the tensor shows.
            counted: whether the view shares the version counter of the tensor.
        """
        if view is not tensor and (replica.move is not None or not counted):
            handle = self._handle(tensor)
            same = handle is not None and handle.counted and handle.replica is replica
            self.show(view, replica, counted and same)

    def derived(self, source: Any, result: torch.Tensor) -> None:
        """Tag a tensor that was created from the memory of another one."""
        tag = self.tags.get(id(source))
        if tag is not None and tag.handle is not None:
            self.show(result, tag.handle.replica, False)
        elif tag is not None:
            self.set_side(result, ACCELERATOR)

    def _handle(self, tensor: torch.Tensor) -> Handle | None:
        tag = self.tags.get(id(tensor))
        return tag.handle if tag is not None else None

    def _counted(self, tensor: torch.Tensor, memory: Memory) -> bool:
        """Return whether a tensor certainly has the version counter that some memory is watched by."""
        handle = self._handle(tensor)
        return handle is not None and handle.counted and self._of.get(handle.replica) is memory

    def _drop(self, tag: Tag | None) -> None:
        """Drop the tag of a tensor that is gone, or shows something else."""
        if tag is None or tag.handle is None:
            return
        replica = tag.handle.replica
        replica.handles -= 1
        memory = self._of.get(replica)
        if replica.handles or memory is None:
            return
        if replica is memory.root:
            self.doubtful.append(memory)
            return
        if replica.exported and replica.behind and memory.kept(replica):
            self.reports.stale(replica, replica.behind[0])
        memory.remove(replica)
        del self._of[replica]
        if not memory.others and not memory.root.behind:
            self._leave(memory)

    def _leave(self, memory: Memory) -> None:
        """Stop watching some memory."""
        for replica in (memory.root, *memory.others):
            self._of.pop(replica, None)
        if self.memories.get(memory.address) is memory:
            del self.memories[memory.address]

    def forget(self, tag: Tag) -> None:
        """Drop the tag of a tensor that is gone; the callback of all tags."""
        if self.tags.get(tag.key) is tag:
            del self.tags[tag.key]
            if tag.handle is not None:
                self.reports.guarded(self._drop, tag)

    # Moves

    def link(self, source: torch.Tensor, alias: torch.Tensor, here: str, there: str, move: Move) -> Memory:
        """Watch the two sides of a move.

        Args:
            source: the moved tensor.
            alias: the result, another object with the same memory; or the same object if the other side is
                an array.
            here: the side of the source.
            there: the side of the alias.
            move: the call.
        """
        address, counted = address_of(alias), True
        memory = self.memories.get(address)
        if memory is not None and memory.over:
            self._leave(memory)
            memory = None
        if memory is not None:
            self.read(source, memory, version_of(source))
            counted = self._counted(source, memory)
        else:
            memory = self.memories[address] = Memory(alias, here)
            self._of[memory.root] = memory
            if len(self.memories) > self._sweep_at:
                self._sweep()
        parent = self.replica(source, memory)
        replica = memory.copy(there, Region.of(alias), move, parent)
        self._of[replica] = memory
        if memory.exposed:
            replica.digest = digest(replica.region, alias)
        self.show(alias, replica, counted)
        if source is not alias:
            other = self._handle(source)
            if other is None or other.replica is not parent:
                self.show(source, parent, counted)
        return memory

    def take_along(self, tensor: torch.Tensor, here: str, there: str, move: Move) -> None:
        """Record that a module moves a tensor of its own; others with the same memory remain where they are.

        Args:
            tensor: the parameter or buffer, which remains the same object.
            here: its side until now.
            there: its side from now on.
            move: the call.
        """
        if shared(tensor):
            self.link(tensor, tensor, here, there, move)
        else:
            self.set_side(tensor, there)

    def settled(self, memory: Memory) -> bool:
        """Stop watching some memory if it has one side left, and return whether this is so."""
        one = len(memory.others) == 1 and not memory.others[0].behind and not memory.root_lives()
        if one or (not memory.others and memory.over):
            self._leave(memory)
            return True
        return False

    def settle(self) -> None:
        """Stop watching memory that has lost one of its two sides since the last call."""
        while self.doubtful:
            memory = self.doubtful.pop(0)
            if self.memories.get(memory.address) is memory:
                self.settled(memory)

    def _sweep(self) -> None:
        """Stop watching all memory that has one side left."""
        for memory in list(self.memories.values()):
            self.settled(memory)
        self._sweep_at = max(256, 2 * len(self.memories))

    # Reads and changes

    def read(self, tensor: torch.Tensor, memory: Memory, version: int | None, changed: bool = False) -> None:
        """Report a hazard if a tensor is read while its replica is stale.

        Args:
            tensor: the tensor.
            memory: its memory.
            version: its version before the call that reads it.
            changed: whether the call has changed it.
        """
        replica = self.replica(tensor, memory)
        if version is not None and self._counted(tensor, memory):
            if memory.version is not None and version != memory.version:
                self._changed_unseen(memory)
            memory.version = version
        if memory.exposed and not changed:
            self._compare(tensor, memory, replica)
        if replica.behind:
            region = Region.of(tensor)
            for change in [c for c in replica.behind if c.region is None or c.region.overlaps(region)]:
                self.reports.stale(replica, change)
                replica.behind.remove(change)

    def write(self, tensor: torch.Tensor, memory: Memory, region: Region, fills: bool) -> None:
        """Mark the other replicas as stale when a tensor is changed in replica.

        Args:
            tensor: the tensor.
            memory: its memory.
            region: the changed elements.
            fills: whether the change overwrites all of the old content.
        """
        replica = self.replica(tensor, memory)
        memory.version = version_of(tensor) if self._counted(tensor, memory) else None
        if fills:
            replica.behind = [c for c in replica.behind if c.region is None or not region.covers(c.region)]
        others = [other for other in memory.others if other is not replica]
        if replica is not memory.root and memory.root_lives():
            others.append(memory.root)
        site: Site | None = None
        for other in others:
            other.digest = None
            if other.exported and other.behind and memory.outlived(other):
                self.reports.stale(other, other.behind[0])
            known = len(other.behind) > _MOST or any(c.covers(region) for c in other.behind)
            if not known and (other.region is None or other.region.overlaps(region)):
                site = site or self._sites.current()
                change = Change(site, replica, region)
                other.behind.append(change)
                if other.exported and other is not memory.root:
                    follows = self._read_follows(other, tensor, change)
                    if follows:
                        self.reports.stale(other, change)
                    other.unread = other.unread or follows is False
                if other is memory.root and other.exported:
                    self.arrays.spoil(tensor, memory.address, between(memory.root, replica), site)
        replica.digest = None

    def alter(self, tensor: torch.Tensor, memory: Memory) -> None:
        """Forget what memory a tensor shows if it has been given other memory."""
        handle = self._handle(tensor)
        if handle is not None and address_of(tensor) != memory.address:
            self.set_side(tensor, handle.replica.side)

    def _changed_unseen(self, memory: Memory) -> None:
        """Mark replicas as stale after a change without a call: gradient accumulation on the accelerator."""
        replicas = [memory.root, *memory.others]
        changed = next((replica for replica in replicas if replica.side == ACCELERATOR), None)
        if changed is not None:
            for replica in replicas:
                if replica.side == HOST and not replica.behind:
                    replica.behind.append(Change(None, changed, None))

    def export(self, tensor: torch.Tensor, memory: Memory) -> None:
        """Mark the replica of a tensor as shared with NumPy."""
        replica = self.replica(tensor, memory)
        replica.exported = True
        for other in memory.others:
            other.digest = digest(other.region, tensor)

    def _read_follows(self, replica: Replica, tensor: torch.Tensor, change: Change) -> bool | None:
        """Return whether a read of a replica's array follows a change that it should not have."""
        assert change.region is not None
        start, region = tensor.untyped_storage().data_ptr(), change.region

        def shows(value: Any) -> bool:
            span = bytes_of(value)
            shown = shown_by(value) if span is not None else None
            if span is None or shown is None:
                return False
            handle = self._handle(shown)
            return (
                handle is not None and handle.replica is replica
                and region.changes(span[0] - start, span[1] - start)
            )  # fmt: skip

        return self.arrays.follows(replica.move, change.site, shows)

    def _compare(self, tensor: torch.Tensor, memory: Memory, reader: Replica) -> None:
        """Mark a replica as stale if NumPy has changed the memory since the last read."""
        for replica in [reader] if reader is not memory.root else memory.others:
            now = digest(replica.region, tensor)
            before, replica.digest = replica.digest, now
            if before is None or now is None or before == now:
                continue
            exported = [memory.root, *memory.others] if reader is not memory.root else [replica]
            writer = next((p for p in exported if p.exported and p is not reader), None)
            if writer is not None:
                reader.behind.append(Change(None, writer, replica.region, True))

    def finish(self) -> None:
        """Report the stale replicas that may have been read unseen."""
        for memory in self.memories.values():
            for replica in memory.others:
                if replica.exported and replica.behind and not replica.unread and replica.move is not None:
                    if memory.outlived(replica) or memory.moves[replica.move.site] == 1:
                        self.reports.stale(replica, replica.behind[0])
        self.arrays.finish()
        self.clear()

    def clear(self) -> None:
        """Stop watching the memory that exists now."""
        self.memories.clear()
        self.doubtful.clear()
        self._of.clear()
        self.arrays.clear()
