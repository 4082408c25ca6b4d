"""Answers requests for CUDA with the CPU, so that one run meets them all and not only the first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from devicefix.verify.runtime.requests import Requests

_VALUES: dict[str, Any] = {
    "current_device": 0,
    "get_device_name": "cpu",
    "get_device_capability": (0, 0),
    "get_device_properties": SimpleNamespace(
        name="cpu", major=0, minor=0, total_memory=0, multi_processor_count=1
    ),
    "mem_get_info": (0, 0),
    "memory_stats": {},
    "memory_summary": "",
    "memory_snapshot": [],
    "can_device_access_peer": False,
}


class Nothing:
    """Stands for a stream, an event or a graph: whatever is called does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: 0.0 if name == "elapsed_time" else True if name == "query" else None

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def answer(call: str, *args: Any, **kwargs: Any) -> Any:
    """What a call gives that has failed for want of CUDA.

    Args:
        call: its name, as `Requests.watched` was given it.
        args: its arguments, and `kwargs` those by name.
    """
    name = call.rstrip("()").rpartition(".")[2]
    if name in ("cuda", "to", "pin_memory", "type") and call.startswith("."):
        return _moved(name, *args, **kwargs)
    if name == "load":
        return torch.load(*args[:1], **{**kwargs, "map_location": "cpu"})
    if name == "set_default_tensor_type":
        return torch.set_default_tensor_type(_cpu_type(args[0]))
    if name == "init_process_group":
        return _group(*args, **kwargs)
    if name == "Generator":
        return torch.Generator()
    if name.endswith("Tensor"):
        return getattr(torch, name)(*args, **kwargs)
    if name == "get_rng_state":
        return torch.get_rng_state()
    if name == "initial_seed":
        return torch.initial_seed()
    if name[:1].isupper() or name in ("current_stream", "default_stream", "graph_pool_handle"):
        return Nothing()
    return _VALUES.get(name)


def _group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("device_id", None)
    return torch.distributed.init_process_group("gloo", *args, **kwargs)


def _cpu_type(kind: Any) -> Any:
    text = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    return text.replace("torch.cuda.", "torch.")


def _moved(name: str, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if name == "type":
        kind, *rest = args or [kwargs.pop("dtype")]
        return tensor.type(_cpu_type(kind), *rest, **kwargs)
    if name == "to":
        args = tuple(_cpu(arg) for arg in args)
        return tensor.to(*args, **{key: _cpu(value) for key, value in kwargs.items()})
    return tensor


def _asks(value: Any) -> bool:
    """Whether a device is one that only a machine with CUDA has."""
    if isinstance(value, str):
        return value.partition(":")[0] == "cuda"
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, int) and not isinstance(value, bool)


def _cpu(value: Any) -> Any:
    return torch.device("cpu") if _asks(value) else value


class Devices(TorchFunctionMode):
    """Makes on the CPU what is to be made on CUDA.

    Args:
        requests: where each such request is told.
    """

    def __init__(self, requests: Requests) -> None:
        super().__init__()
        self._requests = requests

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs and _asks(kwargs.get("device")):
            self._requests.note(f"{getattr(func, '__name__', 'a call')}(device=…)")
            kwargs = {**kwargs, "device": torch.device("cpu")}
        return func(*args, **(kwargs or {}))
