"""Memory that is one on a CPU and would be several copies with CUDA, and which of them is behind by now."""

from __future__ import annotations

import itertools
import sys
import weakref
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from devicefix.verify.runtime.site import Site

_clock = itertools.count()
_WHOLE = 1 << 22  # bytes up to which all of a buffer is digested
_CHUNKS, _CHUNK = 256, 4096
_EXACT = 1 << 24  # elements up to which two patterns of strides are compared one by one


@dataclass(frozen=True, slots=True)
class Move:
    """A call that copies with CUDA: its line, and how it is called there."""

    site: Site
    text: str


@dataclass(frozen=True, slots=True)
class Region:
    """The elements of a storage that a tensor shows."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    width: int
    low: int
    high: int

    @staticmethod
    def of(tensor: torch.Tensor) -> Region:
        """The elements that a tensor shows; `low` and `high` are bytes."""
        size, stride = tuple(tensor.size()), tuple(tensor.stride())
        offset = int(tensor.storage_offset())
        span = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if 0 not in size else 0
        width = tensor.element_size()
        return Region(size, stride, offset, tensor.dtype, width, offset * width, (offset + span) * width)

    def overlaps(self, other: Region) -> bool:
        """Whether the two have an element in common."""
        if self.low >= other.high or other.low >= self.high:
            return False
        if (self._dense() and other._dense()) or self.dtype != other.dtype:
            return True
        start = min(self.offset, other.offset)
        span = max(self.high, other.high) // self.width - start
        if span > _EXACT:
            return True
        mask = torch.zeros(span, dtype=torch.bool)
        mask.as_strided(self.size, self.stride, self.offset - start).fill_(True)
        return bool(mask.as_strided(other.size, other.stride, other.offset - start).any())

    def covers(self, other: Region) -> bool:
        """Whether the other's elements are all among these, as far as that is easy to tell."""
        return self == other or (self._dense() and self.low <= other.low and self.high >= other.high)

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        """The elements, given another tensor of the same storage and dtype."""
        return tensor.detach().as_strided(self.size, self.stride, self.offset)

    def _dense(self) -> bool:
        count = 1
        for n in self.size:
            count *= n
        return self.high - self.low == count * self.width


@dataclass(slots=True, eq=False)
class Place:
    """One of the copies: what one side of a move holds.

    Attributes:
        side: HOST or ACCELERATOR.
        region: its elements, None for all of them.
        move: what made it, None for the one that was first.
        parent: what it was made from.
        handles: how many tensors are known to show it.
        exported: whether NumPy has it, whose reads and writes are not seen.
        digest: of its content, where NumPy may write; None where it is to be taken anew.
        behind: what changed in another copy, and so in this one too.
    """

    side: str
    region: Region | None
    move: Move | None = None
    parent: Place | None = None
    handles: int = 0
    exported: bool = False
    digest: int | None = None
    behind: list[Change] = field(default_factory=list)
    made: int = field(default_factory=_clock.__next__)


@dataclass(frozen=True, slots=True)
class Change:
    """A change in place.

    Attributes:
        site: its line, None where that is not known.
        place: the copy that it was meant for.
        region: the elements, None for all.
        numpy: whether NumPy has made it.
        when: tells what was before and after it.
    """

    site: Site | None
    place: Place
    region: Region | None
    numpy: bool = False
    when: int = field(default_factory=_clock.__next__)

    def covers(self, region: Region) -> bool:
        """Whether it has changed all of some elements."""
        return self.region is None or self.region.covers(region)


class Memory:
    """The copies that share one storage here.

    Args:
        tensor: a tensor that shows it.
        side: the side of the first of them.
    """

    def __init__(self, tensor: torch.Tensor, side: str) -> None:
        self.address = address_of(tensor)
        self.version = version_of(tensor)
        before = _use_count(self.address)
        storage = tensor.untyped_storage()
        held = _use_count(self.address)
        # NumPy's memory can't be resized, whichever of the two had it first; nor can what processes share.
        exposed = not storage.resizable() and not tensor.is_shared()  # type: ignore[no-untyped-call]
        self._storage = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        del storage
        # A storage's Python object holds the storage, and may stay with it.
        self._objects = 1 if held == before else _use_count(self.address) - before
        self.root = Place(side, None, exported=exposed)
        self.others: list[Place] = []
        self.moves: Counter[Site] = Counter()
        self.gone: dict[Site, int] = {}

    @property
    def exposed(self) -> bool:
        """Whether NumPy may write to it."""
        return self.root.exported or any(place.exported for place in self.others)

    @property
    def over(self) -> bool:
        """Whether nothing shows it any more."""
        return bool(self._storage.expired())  # type: ignore[no-untyped-call]

    def copy(self, side: str, region: Region, move: Move, parent: Place) -> Place:
        """Add what a move has made."""
        place = Place(side, region, move, parent)
        self.others.append(place)
        self.moves[move.site] += 1
        return place

    def remove(self, place: Place) -> None:
        """Take a copy away that no tensor shows any more."""
        self.others.remove(place)
        assert place.move is not None
        self.gone[place.move.site] = max(place.made, self.gone.get(place.move.site, 0))

    def outlived(self, place: Place) -> bool:
        """Whether a copy that is behind has seen a later one from its own line: no loop variable does."""
        return any(
            other.move is not None and place.move is not None
            and other.move.site == place.move.site and other.made > place.behind[0].when
            for other in self.others
        )  # fmt: skip

    def kept(self, place: Place) -> bool:
        """Whether a copy that is behind, and now dies, was still of use when the memory was moved again."""
        assert place.move is not None
        since = place.behind[0].when
        later = (other for other in self.others if other.made > since and other.move is not None)
        return self.gone.get(place.move.site, 0) > since or any(
            other.move is not None and other.move.site != place.move.site for other in later
        )

    def root_lives(self) -> bool:
        """Whether anything but the known copies shows the storage, as long as one of them does."""
        users = _use_count(self.address) - self._objects
        return self.root.exported or users > sum(place.handles for place in self.others)


def between(behind: Place, changed: Place) -> Move | None:
    """The move that would have kept a change from reaching the copy that is behind.

    Args:
        behind: the copy that is behind.
        changed: the one that the change was meant for.
    """
    above = set(_line(changed))
    if behind in above:
        path = list(_line(changed))
        return path[path.index(behind) - 1].move
    return behind.move


def _line(place: Place) -> list[Place]:
    found = [place]
    while found[-1].parent is not None:
        found.append(found[-1].parent)
    return found


def digest(region: Region | None, tensor: torch.Tensor) -> int | None:
    """A number that tells contents apart: of all bytes, of evenly spread pieces where there are very many.

    Args:
        region: the elements.
        tensor: a tensor of the same storage.

    Returns:
        the number; None where it can't be had.
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


def tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among values, and in lists of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)


def version_of(tensor: torch.Tensor) -> int | None:
    """How often a tensor has been changed in place, None where torch does not count that."""
    return None if tensor.is_inference() else tensor._version


def address_of(tensor: torch.Tensor) -> int:
    """The address of a tensor's storage, which is what tensors of the same memory have in common."""
    return int(tensor.untyped_storage()._cdata)


if hasattr(torch._C, "_storage_address"):  # saves making an object
    address_of = torch._C._storage_address


def watchable(tensor: torch.Tensor) -> bool:
    """Whether a tensor has memory to watch: sparse ones have none, nor have those of `torch.vmap`."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or not tensor.numel():
        return False
    try:
        return bool(address_of(tensor))
    except RuntimeError:
        return False


def _use_count(address: int) -> int:
    """How many tensors and Python objects hold a storage."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    return sys.maxsize if count is None else int(count(address))


def owner_of(array: Any) -> Any:
    """The array whose memory an array of NumPy shows."""
    while type(array.base) is type(array):
        array = array.base
    return array


def used_elsewhere(reference: weakref.ref[Any]) -> bool:
    """Whether anything but the tensor that was made of it holds an array, or the array that it is a view of.

    Args:
        reference: the array.
    """
    array = reference()
    if array is None:
        return False
    base = array.base
    while base is not None and type(base.base) is type(array):
        base = base.base
    # The tensor's storage and this function's variable hold the array, and getrefcount its argument.
    return sys.getrefcount(array) > 3 or (type(base) is type(array) and sys.getrefcount(base) > 3)
