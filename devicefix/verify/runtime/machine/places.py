"""Places of tensors: the index of a GPU, or HOST. An attribute of the storage holds it."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from devicefix.verify.runtime.profiles import Profile

HOST = -1  # the CPU
FREE = -2  # created internally by torch: it belongs to the device of its first use

_Storage: Any = torch.UntypedStorage
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_CPU = torch.device("cpu")
_gpus: list[torch.device] = []  # the devices of the machine
_refused: set[torch.dtype] = set()


def prepare(profile: Profile) -> None:
    """Add the attributes for the place, and for pinned memory, to storages.

    Args:
        profile: the type of device that a place is an index of.
    """
    _gpus[:] = [torch.device(profile.type, index) for index in range(16)]
    _refused.clear()
    _refused.update(getattr(torch, name) for name in profile.refused)
    _Storage._devicefix_place = HOST
    _Storage._devicefix_pinned = False
    probe = torch.empty(1)
    probe.untyped_storage()._devicefix_place = 0  # type: ignore[attr-defined]
    if place_of(probe) == HOST:  # before torch 2.2 the Python object of a storage could be replaced
        _Storage._devicefix_place, _Storage._devicefix_pinned = _Table(HOST), _Table(False)


class _Table:
    """A descriptor for an attribute of storages if their Python objects are not permanent."""

    def __init__(self, default: Any) -> None:
        self._default = default
        self._places: dict[int, tuple[Any, Any]] = {}
        self._full = 1000

    def __get__(self, storage: Any, owner: Any = None) -> Any:
        return self._places.get(storage._cdata, (None, self._default))[1] if storage is not None else self

    def __set__(self, storage: Any, place: Any) -> None:
        # the weak reference prevents the reuse of the address
        self._places[storage._cdata] = (StorageWeakRef(storage), place)  # type: ignore[no-untyped-call]
        if len(self._places) > self._full:
            self._places = {key: kept for key, kept in self._places.items() if not kept[0].expired()}
            self._full = 1000 + 2 * len(self._places)


def device(place: int) -> torch.device:
    """Return the device that the program sees for a place."""
    return _gpus[place] if place >= 0 else _CPU


def place_of(tensor: torch.Tensor) -> int:
    """Return the place of a tensor or storage: the index of its GPU, HOST or FREE."""
    storage = _storage(tensor)
    if storage is None:
        parts = _parts(tensor)
        return place_of(parts[0]) if parts else HOST
    place: int = storage._devicefix_place
    return place


def put(tensor: torch.Tensor, place: int) -> torch.Tensor:
    """Set the place of a tensor and of all tensors that share its memory."""
    storage = _storage(tensor)
    if storage is not None:
        storage._devicefix_place = place
    else:
        for part in _parts(tensor):
            put(part, place)
    return tensor


def put_new(tensor: torch.Tensor, place: int) -> torch.Tensor:
    """Set the place of a new tensor.

    Raises:
        TypeError: devices of this type have no tensors of its dtype.
    """
    if place >= 0 and tensor.dtype in _refused:
        kind, dtype = device(place).type.upper(), str(tensor.dtype).removeprefix("torch.")
        lacks = f"the {kind} framework doesn't support {dtype}"
        raise TypeError(f"Cannot convert a {kind} Tensor to {dtype} dtype as {lacks}.")
    return put(tensor, place)


def is_pinned(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is in pinned memory."""
    storage = _storage(tensor)
    return storage is not None and bool(storage._devicefix_pinned)


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Make a tensor claim to be in pinned memory, which a build for the CPU lacks."""
    _storage(tensor)._devicefix_pinned = True
    return tensor


def _storage(tensor: torch.Tensor) -> Any:
    """Return the storage of a tensor, or None, without a call of a `__torch_function__` of the program."""
    try:
        if type(tensor) in _PLAIN:
            return tensor.untyped_storage()
        if isinstance(tensor, _Storage):
            return tensor
        with torch._C.DisableTorchFunction():
            return tensor.untyped_storage()
    except RuntimeError:
        return None


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the parts of a tensor without a storage, such as a sparse tensor or one of functorch."""
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
