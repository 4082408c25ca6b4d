"""Several GPUs and several processes, which a build of torch for the CPU does not support."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from devicefix.verify.runtime.machine.patches import Patches
from devicefix.verify.runtime.machine.state import Machine
from devicefix.verify.runtime.machine.tensors import move

_COLLECTIVES = ("broadcast", "broadcast_coalesced", "reduce_add", "reduce_add_coalesced", "scatter", "gather")


def install(machine: Machine, patches: Patches) -> None:
    """Replace the functions that `DataParallel` and `torch.distributed` need.

    Args:
        machine: the machine.
        patches: records the replacements.
    """
    if machine.profile.parallel:
        _install_data_parallel(machine, patches)
    if torch.distributed.is_available():
        _install_distributed(machine, patches)


def _install_data_parallel(machine: Machine, patches: Patches) -> None:
    import torch.cuda.comm
    import torch.nn.parallel.comm

    collectives = _Collectives(machine)
    for name in _COLLECTIVES:
        for owner in (torch.nn.parallel.comm, torch.cuda.comm):
            patches.set(owner, name, getattr(collectives, name))
    apply = partial(_parallel_apply, machine)
    for name in ("", ".data_parallel", ".parallel_apply"):
        patches.set(sys.modules[f"torch.nn.parallel{name}"], "parallel_apply", apply)
    if machine.type == "cuda":
        patches.set(torch.cuda.nccl, "is_available", lambda _: False)
        patches.set(torch.cuda.nccl, "version", lambda: (2, 21, 5))
    patches.set(torch.nn.DataParallel, "__init__", _on_fewer(machine, torch.nn.DataParallel.__init__))


class _Collectives:
    """The functions of `torch.cuda.comm`, which copy between GPUs.

    Args:
        machine: the machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def _to(self, tensor: torch.Tensor, device: Any) -> Any:
        return move(self._machine, tensor, self._machine.index(device))

    def broadcast(self, tensor: Any, devices: Any = None, *, out: Any = None) -> Any:
        if out is not None:
            return tuple(target.copy_(tensor) for target in out)
        return tuple(self._to(tensor, device) for device in devices)

    def broadcast_coalesced(self, tensors: Any, devices: Any, *_: Any, **__: Any) -> Any:
        return [[self._to(tensor, device) for tensor in tensors] for device in devices]

    def reduce_add(self, inputs: Any, destination: Any = None) -> Any:
        total = self._to(inputs[0], destination)
        for tensor in inputs[1:]:
            total = total + self._to(tensor, destination)
        return total

    def reduce_add_coalesced(self, inputs: Any, destination: Any = None, *_: Any, **__: Any) -> Any:
        return tuple(self.reduce_add(row, destination) for row in zip(*inputs, strict=True))

    def scatter(
        self,
        tensor: Any,
        devices: Any = None,
        chunk_sizes: Any = None,
        dim: int = 0,
        *_: Any,
        out: Any = None,
        **__: Any,
    ) -> Any:
        count = len(devices if out is None else out)
        parts = tensor.split(chunk_sizes, dim) if chunk_sizes else tensor.chunk(count, dim)
        if out is not None:
            return tuple(target.copy_(part) for target, part in zip(out, parts, strict=True))
        return tuple(self._to(part, device) for part, device in zip(parts, devices, strict=False))

    def gather(self, tensors: Any, dim: int = 0, destination: Any = None, *, out: Any = None) -> Any:
        device = "cpu" if destination == -1 else destination  # the gradient of an input on the CPU
        whole = torch.cat([self._to(tensor, device) for tensor in tensors], dim)
        return whole if out is None else out.copy_(whole)


def _parallel_apply(
    machine: Machine, modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None
) -> list[Any]:
    """Run the replicas one after another, since the order of random draws in threads would vary."""
    outputs = []
    for number, (module, given) in enumerate(zip(modules, inputs, strict=True)):
        kwargs = kwargs_tup[number] if kwargs_tup else {}
        args = given if isinstance(given, (list, tuple)) else (given,)
        with machine.module.device(devices[number] if devices else number):
            outputs.append(module(*args, **kwargs))
    return outputs


def _on_fewer(machine: Machine, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make `DataParallel` leave out missing GPUs, unless the number of GPUs was set explicitly."""

    def __init__(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        if device_ids is not None and not machine.is_explicit:
            count = len(machine.visible)
            there = [device for device in device_ids if _number(device) < count]
            if 0 < len(there) < len(device_ids):
                device_ids = there
                if output_device is not None and _number(output_device) >= count:
                    output_device = None
        original(self, module, device_ids, output_device, dim)

    return __init__


def _number(device: Any) -> Any:
    """Return the index in a device, a device string or an int, or 0 without one."""
    return device if isinstance(device, int) else torch.device(device).index or 0


def _install_distributed(machine: Machine, patches: Patches) -> None:
    """Make processes communicate through gloo instead of NCCL, or the like for another type of device."""
    own = machine.profile.backend
    distributed: Any = torch.distributed
    c10d: Any = distributed.distributed_c10d

    def over_gloo(original: Callable[..., Any], position: int) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            named = str(args[position] if len(args) > position else kwargs.get("backend") or "").lower()
            if named and machine.type != "cuda":
                machine.gloo = "gloo" in named and own not in named
            if len(args) > position:
                args = (*args[:position], _gloo(args[position], own), *args[position + 1 :])
            else:
                default = None if position else own  # a new group has the backend of all processes
                kwargs["backend"] = _gloo(kwargs.get("backend") or default, own)
            kwargs.pop("device_id", None)
            return original(*args, **kwargs)

        return call

    barrier = c10d.barrier

    def without_devices(group: Any = None, async_op: bool = False, *_: Any, **__: Any) -> Any:
        return barrier(group, async_op)

    replaced = {
        "init_process_group": over_gloo(c10d.init_process_group, 0),
        "new_group": over_gloo(c10d.new_group, 2),
        "barrier": without_devices,
        f"is_{own}_available": lambda: True,
    }
    for name, function in replaced.items():
        for owner in (distributed, c10d):
            patches.set(owner, name, function)
    mesh: Any = sys.modules.get("torch.distributed.device_mesh")
    if hasattr(mesh, "init_process_group"):
        patches.set(mesh, "init_process_group", distributed.init_process_group)
    if machine.profile.custom:
        patches.set(c10d.Backend.default_device_backend_map, machine.type, own)


def _gloo(backend: Any, own: str) -> Any:
    """Return the name of the backend to use for one that the program names."""
    return "gloo" if own in str(backend or "").lower() else backend
