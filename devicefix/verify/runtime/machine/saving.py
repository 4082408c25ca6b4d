"""Places of tensors that are saved to a file or sent to another process."""

from __future__ import annotations

from multiprocessing import reduction
from typing import Any

import torch
from torch.multiprocessing import reductions

from devicefix.verify.runtime.machine.patches import Patches
from devicefix.verify.runtime.machine.places import HOST, place_of, put
from devicefix.verify.runtime.machine.state import Machine

_machines: list[Machine] = []  # the machine of this process, if any: pickles cannot refer to it


def install(machine: Machine, patches: Patches) -> None:
    """Make files and pickles include the devices of the machine.

    Args:
        machine: the machine.
        patches: records the replacements.
    """
    _machines[:] = [machine]
    serialization: Any = torch.serialization

    def tag(storage: Any) -> str | None:
        place = getattr(getattr(storage, "_untyped_storage", storage), "_devicefix_place", HOST)
        return f"cuda:{place}" if place >= 0 else None

    def restore(storage: Any, location: str) -> Any:
        if location.startswith("cuda"):
            if machine.is_explicit:
                serialization.validate_cuda_device(location)
            return storage.cuda(location)
        return None

    registry = serialization._package_registry
    patches.set(serialization, "_package_registry", [(0, tag, restore), *registry])
    locate = serialization._get_restore_location

    def _get_restore_location(map_location: Any) -> Any:
        restored = locate(map_location)

        def restore_location(storage: Any, location: str) -> Any:
            storage._devicefix_place = HOST  # files hold CPU memory
            return restored(storage, location)

        return restore_location

    patches.set(serialization, "_get_restore_location", _get_restore_location)
    reducers = reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    for kind in (torch.Tensor, torch.nn.Parameter):
        patches.item(reducers, kind, _reduce_tensor)
    patches.item(reducers, torch.UntypedStorage, _reduce_storage)


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    """Share the memory of a tensor with another process by torch's functions for CPU tensors."""
    place = place_of(tensor)
    put(tensor, HOST)
    try:
        return _rebuild_tensor, (place, *reductions.reduce_tensor(tensor))  # type: ignore[no-untyped-call]
    finally:
        put(tensor, place)


def _rebuild_tensor(place: int, rebuild: Any, args: Any) -> Any:
    tensor = rebuild(*args)
    for machine in _machines:  # up to torch 2.6, the tensor has lost the place of its storage
        put(tensor, machine.index(place) if place >= 0 else place)
    return tensor


def _reduce_storage(storage: Any) -> Any:
    place = storage._devicefix_place
    storage._devicefix_place = HOST
    try:
        return _rebuild, (place, *reductions.reduce_storage(storage))  # type: ignore[no-untyped-call]
    finally:
        storage._devicefix_place = place


def _rebuild(place: int, rebuild: Any, args: Any) -> Any:
    storage = rebuild(*args)
    for machine in _machines:
        storage._devicefix_place = machine.index(place) if place >= 0 else place
    return storage
