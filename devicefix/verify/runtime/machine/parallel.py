"""Several GPUs, and several processes: what a build of torch for the CPU lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from devicefix.verify.runtime.machine.patches import Patches
from devicefix.verify.runtime.machine.state import Machine
from devicefix.verify.runtime.machine.tensors import move


def install(machine: Machine, patches: Patches) -> None:
    """Give torch what DataParallel and torch.distributed need.

    Args:
        machine: the machine.
        patches: what takes it back.
    """
    import torch.cuda.comm
    import torch.nn.parallel.comm

    for name, function in _collectives(machine).items():
        for owner in (torch.nn.parallel.comm, torch.cuda.comm):
            patches.set(owner, name, function)
    for owner in _owners("parallel_apply"):
        patches.set(owner, "parallel_apply", _parallel_apply)
    patches.set(torch.cuda.nccl, "is_available", lambda tensors: False)
    patches.set(torch.cuda.nccl, "version", lambda: (2, 21, 5))
    patches.set(torch.nn.DataParallel, "__init__", _on_fewer(machine, torch.nn.DataParallel.__init__))
    if torch.distributed.is_available():
        _install_distributed(patches)


def _owners(name: str) -> list[Any]:
    import sys

    modules = ("torch.nn.parallel", "torch.nn.parallel.data_parallel", f"torch.nn.parallel.{name}")
    return [sys.modules[module] for module in modules]


def _collectives(machine: Machine) -> dict[str, Callable[..., Any]]:
    def to(tensor: torch.Tensor, device: Any) -> torch.Tensor:
        return move(machine, tensor, machine.index(device))

    def broadcast(tensor: Any, devices: Any = None, *, out: Any = None) -> Any:
        if out is not None:
            return tuple(each.copy_(tensor) for each in out)
        return tuple(to(tensor, device) for device in devices)

    def broadcast_coalesced(tensors: Any, devices: Any, buffer_size: int = 0) -> Any:
        return [[to(tensor, device) for tensor in tensors] for device in devices]

    def reduce_add(inputs: Any, destination: Any = None) -> Any:
        total = to(inputs[0], destination)
        for tensor in inputs[1:]:
            total = total + to(tensor, destination)
        return total

    def reduce_add_coalesced(inputs: Any, destination: Any = None, buffer_size: int = 0) -> Any:
        return tuple(reduce_add(each, destination) for each in zip(*inputs, strict=True))

    def scatter(
        tensor: Any,
        devices: Any = None,
        chunk_sizes: Any = None,
        dim: int = 0,
        streams: Any = None,
        *,
        out: Any = None,
    ) -> Any:
        count = len(devices if out is None else out)
        parts = tensor.split(chunk_sizes, dim) if chunk_sizes else tensor.chunk(count, dim)
        if out is not None:
            return tuple(each.copy_(part) for each, part in zip(out, parts, strict=True))
        return tuple(to(part, device) for part, device in zip(parts, devices, strict=False))

    def gather(tensors: Any, dim: int = 0, destination: Any = None, *, out: Any = None) -> Any:
        whole = torch.cat([to(tensor, destination) for tensor in tensors], dim)
        return whole if out is None else out.copy_(whole)

    return {
        "broadcast": broadcast,
        "broadcast_coalesced": broadcast_coalesced,
        "reduce_add": reduce_add,
        "reduce_add_coalesced": reduce_add_coalesced,
        "scatter": scatter,
        "gather": gather,
    }


def _parallel_apply(modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None) -> list[Any]:
    """One after another: in threads the GPUs would draw their random numbers in another order each time."""
    outputs = []
    for number, (module, given) in enumerate(zip(modules, inputs, strict=True)):
        kwargs = kwargs_tup[number] if kwargs_tup else {}
        given = given if isinstance(given, (list, tuple)) else (given,)
        with torch.cuda.device(devices[number] if devices else number):
            outputs.append(module(*given, **kwargs))
    return outputs


def _on_fewer(machine: Machine, original: Callable[..., Any]) -> Callable[..., Any]:
    """Programs for several GPUs run on one as well, unless it was said how many there are."""

    def __init__(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        if device_ids is not None and not machine.is_told:
            count = len(machine.visible)
            there = [each for each in device_ids if (_number(each) or 0) < count]
            if len(there) < len(device_ids):
                device_ids = there or None
                if output_device is not None and (_number(output_device) or 0) >= count:
                    output_device = None
        original(self, module, device_ids, output_device, dim)

    return __init__


def _number(device: Any) -> int | None:
    """The number in a device, a string or an int."""
    index: int | None = device if isinstance(device, int) else torch.device(device).index
    return index


def _install_distributed(patches: Patches) -> None:
    """Processes talk over gloo, whatever the program asks for."""
    distributed: Any = torch.distributed
    c10d: Any = distributed.distributed_c10d

    def over_gloo(original: Callable[..., Any], position: int) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(args) > position:
                args = (*args[:position], _gloo(args[position]), *args[position + 1 :])
            else:
                kwargs["backend"] = _gloo(kwargs.get("backend"))
            kwargs.pop("device_id", None)
            return original(*args, **kwargs)

        return call

    barrier = c10d.barrier

    def without_devices(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return barrier(group, async_op)

    replaced = {
        "init_process_group": over_gloo(c10d.init_process_group, 0),
        "new_group": over_gloo(c10d.new_group, 2),
        "barrier": without_devices,
        "is_nccl_available": lambda: True,
    }
    for name, function in replaced.items():
        for owner in (distributed, c10d):
            patches.set(owner, name, function)


def _gloo(backend: Any) -> Any:
    return "gloo" if isinstance(backend, str) and "nccl" in backend.lower() else backend
