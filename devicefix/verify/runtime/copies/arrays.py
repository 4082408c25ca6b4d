"""NumPy arrays that share memory with tensors."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from devicefix.verify.runtime.copies.following import read_follows
from devicefix.verify.runtime.copies.memory import Move, Region, address_of
from devicefix.verify.runtime.copies.reports import Reports
from devicefix.verify.runtime.site import Site, Sites

_MOST = 256  # spoiled arrays to keep: the same lines spoil more
_LOOKS = 4  # changes by one line after which a read is looked for


class _Spoiled(NamedTuple):
    """An array that changed through a tensor that CUDA would have copied.

    Attributes:
        array: a weak reference to the array.
        low: the address of the first changed byte.
        high: the address after the last changed byte.
        move: the call that copies on CUDA.
        site: the line of the change.
    """

    array: weakref.ref[Any]
    low: int
    high: int
    move: Move
    site: Site


class Arrays:
    """The arrays that tensors were created from.

    Args:
        reports: the recorder of copy hazards.
        sites: finds the program's own lines.
    """

    def __init__(self, reports: Reports, sites: Sites) -> None:
        self._reports = reports
        self._sites = sites
        self._looked: Counter[tuple[Site | None, Site | None]] = Counter()
        self._arrays: dict[int, weakref.ref[Any]] = {}
        self._spoiled: list[_Spoiled] = []

    def __len__(self) -> int:
        return len(self._arrays)

    def wrap(self, array: Any, tensor: torch.Tensor) -> None:
        """Register an array from which a tensor was created, and so has been read.

        Args:
            array: the array.
            tensor: the tensor that shows its memory.
        """
        if tensor.untyped_storage().resizable():
            return
        low, high = _bytes_of(tensor)
        for spoiled in [s for s in self._spoiled if s.low < high and low < s.high]:
            self._spoiled.remove(spoiled)
            self._report(spoiled)
        address, arrays = address_of(tensor), self._arrays

        def forget(reference: weakref.ref[Any]) -> None:
            if arrays.get(address) is reference:
                del arrays[address]

        arrays[address] = weakref.ref(array, forget)

    def spoil(self, tensor: torch.Tensor, address: int, move: Move | None, site: Site) -> None:
        """Register that the array at an address changes through a tensor.

        Args:
            tensor: the tensor.
            address: the address of the memory.
            move: the call that would have copied the array with CUDA, or None.
            site: the line of the change.
        """
        reference = self._arrays.get(address)
        if reference is None or move is None or len(self._spoiled) > _MOST:
            return
        if used_elsewhere(reference):
            owner = weakref.ref(owner_of(reference()))
            spoiled = _Spoiled(owner, *_bytes_of(tensor), move, site)

            def shows(value: Any) -> bool:
                span = bytes_of(value)
                return span is not None and span[0] <= spoiled.low and spoiled.high <= span[1]

            follows = self.follows(move, site, shows, tensors=1)
            if follows:
                self._report(spoiled)
            elif follows is None:
                self._spoiled.append(spoiled)

    def follows(
        self, move: Move | None, site: Site | None, shows: Callable[[Any], bool], tensors: int = 0
    ) -> bool | None:
        """Return whether a read of a changed array follows; None if this is unknown.

        Args:
            move: the call that separates the array from the changed tensor with CUDA.
            site: the line of the change.
            shows: whether a value is the array.
            tensors: how many tensors hold the array.
        """
        key = (move.site if move is not None else None, site)
        self._looked[key] += 1
        if self._looked[key] > _LOOKS:
            return None
        return read_follows(shows, self._sites.is_project, tensors)

    def finish(self) -> None:
        """Report the arrays that may have been read unseen."""
        for spoiled in self._spoiled:
            self._report(spoiled)

    def clear(self) -> None:
        """Forget the changed arrays."""
        self._spoiled.clear()

    def _report(self, spoiled: _Spoiled) -> None:
        if spoiled.array() is not None:
            self._reports.hazard("numpy buffer", spoiled.move, spoiled.site)


def _bytes_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the addresses of the first byte of a tensor and of the byte after the last."""
    region = Region.of(tensor)
    low = tensor.data_ptr()
    return low, low + region.high - region.low


def bytes_of(array: Any) -> tuple[int, int] | None:
    """Return the addresses of the first byte of an array and of the byte after the last.

    Args:
        array: any value.

    Returns:
        The addresses; None if the value is no NumPy array, or one with gaps.
    """
    if type(array).__module__ != "numpy" or type(array).__name__ != "ndarray" or not array.size:
        return None
    low = high = array.__array_interface__["data"][0]
    for n, step in zip(array.shape, array.strides, strict=True):
        low, high = low + min(0, (n - 1) * step), high + max(0, (n - 1) * step)
    high += array.itemsize
    return (low, high) if high - low == array.nbytes else None


def shown_by(array: Any) -> torch.Tensor | None:
    """Return the tensor whose memory an array shows, which NumPy keeps alive, or None."""
    base = getattr(array, "base", None)
    while base is not None and not isinstance(base, torch.Tensor):
        base = getattr(base, "base", None)
    return base


def owner_of(array: Any) -> Any:
    """Return the array that owns the memory of a NumPy array."""
    while type(array.base) is type(array):
        array = array.base
    return array


def used_elsewhere(reference: weakref.ref[Any]) -> bool:
    """Return whether the program still uses an array, or the array that it is a view of.

    Args:
        reference: the array from which a tensor was created.
    """
    array = reference()
    if array is None:
        return False
    base = array.base
    while base is not None and type(base.base) is type(array):
        base = base.base
    # The storage of the tensor, the local variable and the argument of getrefcount hold one reference each.
    return sys.getrefcount(array) > 3 or (type(base) is type(array) and sys.getrefcount(base) > 3)
