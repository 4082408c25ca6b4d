"""Memory that is shared on a CPU but would have several replicas with CUDA."""

from __future__ import annotations

import itertools
import math
import sys
import weakref
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from devicefix.verify.runtime.site import Site

_clock = itertools.count()
_WHOLE = 1 << 22  # bytes: a larger buffer is digested in parts
_CHUNKS, _CHUNK = 256, 4096
_EXACT = 1 << 24  # elements: larger patterns of strides are not compared one by one


@dataclass(frozen=True, slots=True)
class Move:
    """A call that copies with CUDA: its line and its text."""

    site: Site
    text: str


@dataclass(frozen=True, slots=True)
class Region:
    """The elements of a storage that a tensor shows.

    Attributes:
        size: the size of the tensor.
        stride: its strides, in elements.
        offset: its offset in the storage, in elements.
        dtype: its dtype.
        width: the size of an element in bytes.
        low: the first byte.
        high: the byte after the last.
        mask: which of its elements count, or None for all.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    width: int
    low: int
    high: int
    mask: torch.Tensor | None = field(default=None, compare=False)

    @staticmethod
    def of(tensor: torch.Tensor, mask: torch.Tensor | None = None) -> Region:
        """Return the region that a tensor shows, or the part of it that a mask selects."""
        size, stride = tuple(tensor.size()), tuple(tensor.stride())
        offset = int(tensor.storage_offset())
        span = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if 0 not in size else 0
        width = tensor.element_size()
        low, high = offset * width, (offset + span) * width
        return Region(size, stride, offset, tensor.dtype, width, low, high, mask)

    def overlaps(self, other: Region) -> bool:
        """Return whether the two regions have an element in common."""
        if self.low >= other.high or other.low >= self.high:
            return False
        if (self._dense() and other._dense()) or self.dtype != other.dtype:
            return True
        start = min(self.offset, other.offset)
        span = max(self.high, other.high) // self.width - start
        if span > _EXACT:
            return True
        mine, theirs = (torch.zeros(span, dtype=torch.bool) for _ in range(2))
        for mask, region in ((mine, self), (theirs, other)):
            elements = mask.as_strided(region.size, region.stride, region.offset - start)
            if region.mask is None:
                elements.fill_(True)
            else:
                elements.copy_(region.mask)
        return bool((mine & theirs).any())

    def covers(self, other: Region) -> bool:
        """Return whether this region certainly contains the other."""
        if self.mask is not None:
            return False
        return self == other or (self._dense() and self.low <= other.low and self.high >= other.high)

    def changes(self, low: int, high: int) -> bool:
        """Return whether a change of this region certainly changes an array between two bytes."""
        within = low <= self.low and self.high <= high
        return within or (self._dense() and self.low <= low and high <= self.high)

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the elements as a view of another tensor of the same storage and dtype."""
        return tensor.detach().as_strided(self.size, self.stride, self.offset)

    def _dense(self) -> bool:
        return self.mask is None and self.high - self.low == math.prod(self.size) * self.width


@dataclass(slots=True, eq=False)
class Replica:
    """One of the copies that CUDA would have of some memory.

    Attributes:
        side: HOST or ACCELERATOR.
        region: its elements, or None for all of the memory.
        move: the call that created it, or None for the first replica.
        parent: the replica that it was copied from.
        handles: the number of known tensors that show it.
        exported: whether NumPy shares it, whose reads and writes are not seen.
        unread: whether its array is certainly not read after the first change that it should not have.
        digest: the digest of its content if NumPy may write to it; None if it is out of date.
        behind: the changes to other replicas, which with CUDA would not affect this one.
        made: the time of its creation, on the watch's clock.
    """

    side: str
    region: Region | None
    move: Move | None = None
    parent: Replica | None = None
    handles: int = 0
    exported: bool = False
    unread: bool = False
    digest: int | None = None
    behind: list[Change] = field(default_factory=list)
    made: int = field(default_factory=_clock.__next__)


@dataclass(frozen=True, slots=True)
class Change:
    """A change in replica.

    Attributes:
        site: its line, or None if it is unknown.
        replica: the replica that the program changes.
        region: the changed elements, or None for all.
        numpy: whether NumPy made the change.
        when: the time of the change, on the watch's clock.
    """

    site: Site | None
    replica: Replica
    region: Region | None
    numpy: bool = False
    when: int = field(default_factory=_clock.__next__)

    def covers(self, region: Region) -> bool:
        """Return whether it changes all elements of a region."""
        return self.region is None or self.region.covers(region)


class Memory:
    """The replicas that share one storage on the CPU.

    Args:
        tensor: a tensor of the storage.
        side: the side of the first replica.
    """

    def __init__(self, tensor: torch.Tensor, side: str) -> None:
        self.address = address_of(tensor)
        self.version = version_of(tensor)
        before = _use_count(self.address)
        storage = tensor.untyped_storage()
        held = _use_count(self.address)
        # Memory that is shared with NumPy cannot be resized, nor can memory that processes share.
        exposed = not storage.resizable() and not tensor.is_shared()  # type: ignore[no-untyped-call]
        self._storage = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        del storage
        # The Python object of a storage holds the storage, and may outlive this reference.
        self._objects = 1 if held == before else _use_count(self.address) - before
        self.root = Replica(side, None, exported=exposed)
        self.others: list[Replica] = []
        self.moves: Counter[Site] = Counter()
        self.gone: dict[Site, int] = {}

    @property
    def exposed(self) -> bool:
        """Return whether NumPy may write to the memory."""
        return self.root.exported or any(replica.exported for replica in self.others)

    @property
    def over(self) -> bool:
        """Return whether the storage is gone."""
        return bool(self._storage.expired())  # type: ignore[no-untyped-call]

    def copy(self, side: str, region: Region, move: Move, parent: Replica) -> Replica:
        """Add the replica that a move creates."""
        replica = Replica(side, region, move, parent)
        self.others.append(replica)
        self.moves[move.site] += 1
        return replica

    def remove(self, replica: Replica) -> None:
        """Remove a replica that no tensor shows any more."""
        self.others.remove(replica)
        assert replica.move is not None
        self.gone[replica.move.site] = max(replica.made, self.gone.get(replica.move.site, 0))

    def outlived(self, replica: Replica) -> bool:
        """Return whether a stale replica still exists when its line creates a newer one.

        A loop variable does not: it drops the old replica first.
        """
        return any(
            other.move is not None and replica.move is not None
            and other.move.site == replica.move.site and other.made > replica.behind[0].when
            for other in self.others
        )  # fmt: skip

    def kept(self, replica: Replica) -> bool:
        """Return whether a dropped, stale replica still existed when the memory was moved again."""
        assert replica.move is not None
        since = replica.behind[0].when
        later = (other for other in self.others if other.made > since and other.move is not None)
        return self.gone.get(replica.move.site, 0) > since or any(
            other.move is not None and other.move.site != replica.move.site for other in later
        )

    def root_lives(self) -> bool:
        """Return whether the first replica is in use, given that another one is."""
        users = _use_count(self.address) - self._objects
        return self.root.exported or users > sum(replica.handles for replica in self.others)


@dataclass(frozen=True, slots=True, eq=False)
class Handle:
    """A tensor object that shows watched memory.

    Attributes:
        replica: the replica that it shows.
        counted: whether it shares its version counter with the first tensor of the memory.
    """

    replica: Replica
    counted: bool


class Tag(weakref.ref):  # type: ignore[type-arg]
    """The record of one tensor object, dropped with the object. Untagged tensors are on the host.

    Attributes:
        key: the id of the object.
        handle: the watched memory that the tensor shows; None for other tensors on the accelerator.
    """

    __slots__ = ("handle", "key")
    key: int
    handle: Handle | None


def between(behind: Replica, changed: Replica) -> Move | None:
    """Return the move that, with CUDA, separates a stale replica from the changed one.

    Args:
        behind: the stale replica.
        changed: the replica that the program changes.
    """
    path = [changed]
    while path[-1].parent is not None:
        path.append(path[-1].parent)
    return path[path.index(behind) - 1].move if behind in path else behind.move


def digest(region: Region | None, tensor: torch.Tensor) -> int | None:
    """Return a digest of the content of a region: of all bytes, or of evenly spaced parts of a large region.

    Args:
        region: the region.
        tensor: a tensor of the same storage.

    Returns:
        The digest, or None if the tensor has another dtype.
    """
    if region is None or tensor.dtype != region.dtype:
        return None
    array = region.view(tensor).contiguous().reshape(-1).view(torch.uint8).numpy()
    data: Any = array.data
    if data.nbytes <= _WHOLE:
        return zlib.adler32(data)
    value, step = 1, (data.nbytes - _CHUNK) // (_CHUNKS - 1)
    for start in range(0, data.nbytes - _CHUNK + 1, step):
        value = zlib.adler32(data[start : start + _CHUNK], value)
    return value


def version_of(tensor: torch.Tensor) -> int | None:
    """Return the number of changes in replica to a tensor, or None if torch does not count them."""
    return None if tensor.is_inference() else tensor._version


def address_of(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage, which identifies its memory."""
    return int(tensor.untyped_storage()._cdata)


if hasattr(torch._C, "_storage_address"):  # faster, since it creates no object
    address_of = torch._C._storage_address


def watchable(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has memory to watch, unlike sparse tensors and those of `torch.vmap`."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or not tensor.numel():
        return False
    try:
        return bool(address_of(tensor))
    except RuntimeError:
        return False


def shared(tensor: torch.Tensor) -> bool:
    """Return whether other tensors, or NumPy arrays that show them, have the memory of a tensor."""
    return _use_count(address_of(tensor)) > 1


def _use_count(address: int) -> int:
    """Return how many tensors and Python objects hold a storage."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    return sys.maxsize if count is None else int(count(address))
