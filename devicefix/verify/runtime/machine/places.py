"""Where tensors are: the number of a GPU, written on the storage, or the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

HOST = -1  # the CPU
FREE = -2  # made by torch itself in passing; it goes where it is first used

_Storage: Any = torch.UntypedStorage
_CPU = torch.device("cpu")
_GPUS = [torch.device("cuda", index) for index in range(16)]


def prepare() -> None:
    """Let storages bear their places."""
    _Storage._devicefix_place = HOST
    probe = torch.empty(1)
    probe.untyped_storage()._devicefix_place = 0  # type: ignore[attr-defined]
    if (
        place_of(probe) == HOST
    ):  # before torch 2.2 a storage's Python object, and what is on it, could be lost
        _Storage._devicefix_place = _Table()


class _Table:
    """The attribute `_devicefix_place` of storages whose Python objects come and go."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[Any, int]] = {}
        self._full = 1000

    def __get__(self, storage: Any, owner: Any = None) -> Any:
        return self._places.get(storage._cdata, (None, HOST))[1] if storage is not None else self

    def __set__(self, storage: Any, place: int) -> None:
        # the weak reference keeps the address from being used again
        self._places[storage._cdata] = (StorageWeakRef(storage), place)  # type: ignore[no-untyped-call]
        if len(self._places) > self._full:
            self._places = {key: kept for key, kept in self._places.items() if not kept[0].expired()}
            self._full = 1000 + 2 * len(self._places)


def device(place: int) -> torch.device:
    """The device that a program is told."""
    return _GPUS[place] if place >= 0 else _CPU


def place_of(tensor: torch.Tensor) -> int:
    """Where a tensor is: the index of its GPU, HOST or FREE."""
    try:
        place: int = tensor.untyped_storage()._devicefix_place  # type: ignore[attr-defined]
    except RuntimeError:
        parts = _parts(tensor)
        return place_of(parts[0]) if parts else HOST
    return place


def put(tensor: torch.Tensor, place: int) -> torch.Tensor:
    """Say where a tensor, and whatever shares its memory, is."""
    try:
        tensor.untyped_storage()._devicefix_place = place  # type: ignore[attr-defined]
    except RuntimeError:
        for part in _parts(tensor):
            put(part, place)
    return tensor


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors with storages of which one without consists, as sparse ones and those of functorch do."""
    with torch._C._DisableTorchDispatch():
        layout = tensor.layout
        if layout == torch.sparse_coo:
            return [tensor._values(), tensor._indices()]
        if layout in (torch.sparse_csr, torch.sparse_bsr):
            return [tensor.values(), tensor.crow_indices(), tensor.col_indices()]
        if layout in (torch.sparse_csc, torch.sparse_bsc):
            return [tensor.values(), tensor.ccol_indices(), tensor.row_indices()]
        functorch: Any = getattr(torch._C, "_functorch", None)
        if functorch and functorch.is_functorch_wrapped_tensor(tensor):
            return [functorch.get_unwrapped(tensor)]
    return []
