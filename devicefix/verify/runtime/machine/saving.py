"""Places of tensors that are saved to a file or sent to another process."""

from __future__ import annotations

from functools import wraps
from multiprocessing import reduction
from typing import Any

import torch
from torch.multiprocessing import reductions

from devicefix.verify.runtime.machine.patches import Patches
from devicefix.verify.runtime.machine.places import HOST, device, place_of, put
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
        return str(device(place)) if place >= 0 else None

    def restore(storage: Any, location: str) -> Any:
        if location.startswith(machine.type):
            if machine.is_explicit and machine.type == "cuda":
                serialization.validate_cuda_device(location)
            return storage.to(device=location)
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
    for name in ("_load", "_legacy_load"):
        patches.set(serialization, name, _uncounted(machine, getattr(serialization, name)))
    shared = torch.UntypedStorage._new_shared

    def new_shared(size: int, *, device: Any = "cpu") -> Any:  # for workers of a loader, which collate in it
        return _rebuild(machine.index(device), shared, (size,))

    patches.set(torch.UntypedStorage, "_new_shared", staticmethod(new_shared))
    reducers = reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    for kind in (torch.Tensor, torch.nn.Parameter, torch.UntypedStorage):
        patches.set(reducers, kind, _reduce)


def _uncounted(machine: Machine, load: Any) -> Any:
    """Return a function that loads a file: what makes its tensors is no operation of the program."""

    @wraps(load)
    def loaded(*args: Any, **options: Any) -> Any:
        counts = machine.on_gpu, machine.on_cpu
        try:
            return load(*args, **options)
        finally:
            machine.on_gpu, machine.on_cpu = counts

    return loaded


def _reduce(value: Any) -> Any:
    """Share the memory of a tensor or storage with another process by torch's functions for the CPU."""
    is_tensor = isinstance(value, torch.Tensor)
    reduce: Any = reductions.reduce_tensor if is_tensor else reductions.reduce_storage
    place = place_of(value)
    put(value, HOST)
    try:
        return _rebuild, (place, *reduce(value))
    finally:
        put(value, place)


def _rebuild(place: int, rebuild: Any, args: Any) -> Any:
    value = rebuild(*args)
    for machine in _machines:  # up to torch 2.6, a tensor has lost the place of its storage
        put(value, machine.index(place) if place >= 0 else place)
    return value
