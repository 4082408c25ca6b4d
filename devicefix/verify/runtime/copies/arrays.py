"""NumPy arrays that share memory with tensors."""

from __future__ import annotations

import sys
import weakref
from typing import Any, NamedTuple

import torch

from devicefix.verify.runtime.copies.memory import Move, Region, address_of
from devicefix.verify.runtime.copies.reports import Reports
from devicefix.verify.runtime.site import Site

_MOST = 256  # spoiled arrays to keep: the same lines spoil more


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
    """

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
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
            self._spoiled.append(_Spoiled(owner, *_bytes_of(tensor), move, site))

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
