"""Answers to requests for CUDA by the CPU, so that one run finds all requests and not just the first."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from devicefix.verify.runtime.requests import Requests

_PROPERTIES = SimpleNamespace(name="cpu", major=0, minor=0, total_memory=0, multi_processor_count=1)
_VALUES: dict[str, Any] = {
    "current_device": 0,
    "get_device_name": "cpu",
    "get_device_capability": (0, 0),
    "get_device_properties": _PROPERTIES,
    "mem_get_info": (0, 0),
    "memory_stats": {},
    "memory_summary": "",
    "memory_snapshot": [],
    "can_device_access_peer": False,
}


class Nothing:
    """A placeholder for a stream, an event or a graph, whose methods do nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        answer = {"elapsed_time": 0.0, "query": True}.get(name)
        return lambda *_, **__: answer

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def answer(call: str, *args: Any, **kwargs: Any) -> Any:
    """Return an answer to a call that failed because there is no CUDA.

    Args:
        call: the name of the call, as passed to `Requests.watched`.
        *args: the positional arguments of the call.
        **kwargs: the keyword arguments of the call.
    """
    name = call.rstrip("()").rpartition(".")[2]
    if name in ("cuda", "to", "pin_memory", "type") and call.startswith("."):
        return _moved(name, *args, **kwargs)
    if name in _CALLS:
        return _CALLS[name](*args, **kwargs)
    if name.endswith("Tensor"):
        return getattr(torch, name)(*args, **kwargs)
    if name[:1].isupper() or name in ("current_stream", "default_stream", "graph_pool_handle"):
        return Nothing()
    return _VALUES.get(name)


def _load(*args: Any, **kwargs: Any) -> Any:
    return torch.load(*args[:1], **{**kwargs, "map_location": "cpu"})


def _init_process_group(*args: Any, **kwargs: Any) -> Any:
    kwargs = {name: value for name, value in kwargs.items() if name not in ("backend", "device_id")}
    return torch.distributed.init_process_group("gloo", *args[1:], **kwargs)


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


def _is_cuda(value: Any) -> bool:
    """Return whether the value names a CUDA device."""
    if isinstance(value, str):
        return value.partition(":")[0] == "cuda"
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, int) and not isinstance(value, bool)


def _cpu(value: Any) -> Any:
    return torch.device("cpu") if _is_cuda(value) else value


_CALLS: dict[str, Callable[..., Any]] = {
    "load": _load,
    "set_default_tensor_type": lambda kind: torch.set_default_tensor_type(_cpu_type(kind)),
    "init_process_group": _init_process_group,
    "Generator": lambda *_, **__: torch.Generator(),
    "get_rng_state": lambda *_, **__: torch.get_rng_state(),
    "initial_seed": torch.initial_seed,
}


class Devices(TorchFunctionMode):
    """A mode that creates tensors on the CPU instead of CUDA.

    Args:
        requests: the recorder of such requests.
    """

    def __init__(self, requests: Requests) -> None:
        super().__init__()
        self._requests = requests

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs and _is_cuda(kwargs.get("device")):
            self._requests.note(f"{getattr(func, '__name__', 'a call')}(device=…)")
            kwargs = {**kwargs, "device": torch.device("cpu")}
        return func(*args, **(kwargs or {}))
