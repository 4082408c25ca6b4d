"""The functions of torch's module for the GPUs, such as `torch.cuda`, and of `torch.accelerator`."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from devicefix.verify.runtime.machine import lacking
from devicefix.verify.runtime.machine.checks import check_state
from devicefix.verify.runtime.machine.patches import Patches
from devicefix.verify.runtime.machine.places import HOST
from devicefix.verify.runtime.machine.state import Machine
from devicefix.verify.runtime.machine.streams import Streams
from devicefix.verify.runtime.profiles import CUDA

NAME = "Simulated GPU"
_TOTAL = 16 << 30
_USED = 1 << 20  # the reported memory in use: the true figure would vary between runs
_VERSION = "12.6"
_OF_CUDNN = (torch.half, torch.float, torch.double, torch.bfloat16)
_DTYPES = (
    "float64", "float32", "float16", "bfloat16", "complex128", "complex64", "int64", "int32", "int16", "int8",
    "uint8", "bool",
)  # fmt: skip
_PROPERTIES = types.SimpleNamespace(
    name=NAME, major=8, minor=0, total_memory=_TOTAL, multi_processor_count=108, is_integrated=0,
    is_multi_gpu_board=0, max_threads_per_multi_processor=2048, shared_memory_per_block=49152,
    regs_per_multiprocessor=65536, warp_size=32, L2_cache_size=40 << 20, gcnArchName="",
    uuid="00000000-0000-0000-0000-000000000000",
)  # fmt: skip


def install(machine: Machine, patches: Patches) -> None:
    """Make torch's module for the GPUs and `torch.accelerator` report the state of the machine.

    What the module of another type than CUDA lacks in torch, it lacks here too.

    Args:
        machine: the machine.
        patches: records the replacements.
    """
    streams, memory = Streams(machine), _memory(machine)
    names = {**_devices(machine), **memory, **_random(machine), **streams.functions()}
    module, profile = machine.module, machine.profile
    parts = (getattr(module, part, None) for part in ("memory", "random", "streams", "graphs", "event"))
    owners = [module, *filter(None, parts)]
    for name, value in {**names, **_OF_TYPE.get(machine.type, {})}.items():
        for owner in owners:
            is_added = owner is module and (profile is CUDA or profile.custom) and name not in profile.lacks
            if is_added or name in vars(owner):
                patches.set(owner, name, value)
    if profile is CUDA:
        _install_cuda(patches)
    patches.set(torch._C, "_get_accelerator", _constant(torch.device(machine.type)))
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        patches.set(torch, "Stream", streams.stream_type)
        patches.set(torch, "Event", streams.event_type)
        _install_accelerator(machine, names, memory, patches)
    for name, answer in _METAL.items() if machine.type == "mps" else ():
        patches.set(torch.backends.mps, name, _constant(answer))
    if profile.custom:
        patches.set(torch.nn.Module, machine.type, _module_mover(machine.type))


def _install_cuda(patches: Patches) -> None:
    """Make torch report a build for CUDA."""
    patches.set(torch.version, "cuda", torch.version.cuda or _VERSION)
    patches.set(torch.cuda.nvtx, "_nvtx", _Nvtx)
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    cudnn = sys.modules["torch.backends.cudnn"]
    for name, answer in {"is_available": True, "version": 90100}.items():
        patches.set(cudnn, name, _constant(answer))
    patches.set(cudnn, "is_acceptable", lambda tensor: tensor.is_cuda and tensor.dtype in _OF_CUDNN)
    patches.set(torch._C, "_cuda_clearCublasWorkspaces", _constant(None))  # of older versions of Lightning


def _module_mover(kind: str) -> Callable[..., Any]:
    """Return the method that moves a module to a type of device that torch does not know."""
    return lambda module, device=None: module._apply(lambda tensor: getattr(tensor, kind)(device))


def _constant(answer: Any) -> Callable[..., Any]:
    """Return a function that returns the same answer for any arguments."""
    return lambda *_, **__: answer


class _NoGraph:
    """The replacement of `torch.cuda.CUDAGraph` and `torch.cuda.graph`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        lacking.note("graphs of a GPU")
        raise RuntimeError("the simulated machine does not support CUDA graphs")


# What the modules have beside the names of `torch.cuda`.
_XPU: Any = types.SimpleNamespace(
    name=NAME, platform_name="Simulated", type="gpu", driver_version="1", total_memory=_TOTAL,
    max_compute_units=512, gpu_eu_count=512, gpu_subslice_count=64, max_work_group_size=1024,
    max_num_sub_groups=64, sub_group_sizes=[16, 32], has_fp16=True, has_fp64=True, has_atomic64=True,
)  # fmt: skip
_OF_TYPE: dict[str, dict[str, Any]] = {
    "xpu": {
        "XPUGraph": _NoGraph,
        "get_device_properties": _constant(_XPU),
        "get_device_capability": _constant(vars(_XPU)),
    },
    "mps": {
        "current_allocated_memory": lambda: _USED,
        "driver_allocated_memory": lambda: _USED,
        "recommended_max_memory": lambda: _TOTAL,
    },
    **{
        kind: {
            f"{kind.upper()}Graph": _NoGraph,
            "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
        }
        for kind in ("npu", "hpu", "musa")
    },
}
_METAL = {"is_available": True, "is_built": True, "is_macos_or_newer": True, "is_macos13_or_newer": True}


def _of_gpu(machine: Machine, answer: Any) -> Callable[..., Any]:
    """Return a function of a device that returns the same answer for every GPU."""

    def call(device: Any = None) -> Any:
        machine.gpu(device)
        return answer

    return call


def _devices(machine: Machine) -> dict[str, Any]:
    """Return the functions for devices, by name."""

    def set_device(device: Any) -> None:
        if isinstance(device, int) and device < 0:
            return
        if device is None or (not isinstance(device, int) and torch.device(device).index is None):
            wanted = "a torch.device with a specified index or an integer"
            raise ValueError(f"Expected {wanted}, but got:{device}")
        machine.selected.index = machine.gpu(device)

    def synchronize(device: Any = None) -> None:
        place = machine.gpu(device)
        if machine.moves is not None:
            machine.moves.record("call", device=f"{machine.type}:{place}", what="synchronize")

    fields = {"machine": machine, "__module__": machine.module.__name__}
    return {
        "is_available": machine.is_available,
        "device_count": machine.device_count,
        "current_device": machine.gpu,
        "set_device": set_device,
        "device": type("device", (_Selection,), fields),
        "device_of": type("device_of", (_SelectionOf,), fields),
        "_exchange_device": machine.exchange,
        "_maybe_exchange_device": machine.exchange,
        "get_device_name": _of_gpu(machine, NAME),
        "get_device_properties": _of_gpu(machine, _PROPERTIES),
        "get_device_capability": _of_gpu(machine, (8, 0)),
        "get_arch_list": _constant(["sm_80"]),
        "can_device_access_peer": lambda device, peer_device: machine.gpu(device) != machine.gpu(peer_device),
        "is_bf16_supported": _constant(True),
        "is_tf32_supported": _constant(True),
        "is_initialized": lambda: machine.initialized and not machine.forked,
        "init": machine.initialize,
        "_lazy_init": machine.initialize,
        "_lazy_call": lambda call, **_: call(),
        "_is_in_bad_fork": lambda: machine.forked,
        "synchronize": synchronize,
        "ipc_collect": machine.initialize,
        "cudart": _of_gpu(machine, _Cudart()),
        "utilization": _of_gpu(machine, 0),
        "temperature": _of_gpu(machine, 0),
        "CUDAGraph": _NoGraph,
        "graph": _NoGraph,
        "make_graphed_callables": _NoGraph,
        "is_current_stream_capturing": _constant(False),
    }


def _memory(machine: Machine) -> dict[str, Any]:
    """Return the functions for memory, by name. Their figures are constants."""

    def used(device: Any = None) -> int:
        return _USED if machine.initialized and machine.gpu(device) >= 0 else 0

    def stats(device: Any = None) -> dict[str, Any]:
        kinds = ("allocated_bytes", "reserved_bytes", "active_bytes")
        return {f"{kind}.all.{when}": used(device) for kind in kinds for when in ("current", "peak")}

    resets = ["peak_memory_stats", "accumulated_memory_stats", "max_memory_allocated", "max_memory_cached"]
    kinds = ("allocated", "reserved", "cached")
    return {
        "empty_cache": lambda: None,
        **{f"{most}memory_{kind}": used for most in ("", "max_") for kind in kinds},
        **{f"reset_{what}": _of_gpu(machine, None) for what in resets},
        "memory_stats": stats,
        "memory_snapshot": _constant([]),
        "memory_summary": lambda device=None, *_, **__: f"{NAME}: {used(device)} bytes",
        "list_gpu_processes": _of_gpu(machine, "no processes are running"),
        "mem_get_info": _of_gpu(machine, (_TOTAL - _USED, _TOTAL)),
        "set_per_process_memory_fraction": _constant(None),
    }


def _random(machine: Machine) -> dict[str, Any]:
    """Return the functions for the GPUs' random generators, by name."""

    def manual_seed(seed: int) -> None:
        if not machine.forked and machine.seeded:
            machine.reseed(machine.selected.index, seed)

    def get_state(device: Any = machine.type) -> torch.Tensor:
        machine.gpu(device)
        return torch.default_generator.get_state()  # all draws use the CPU generator

    def set_state(new_state: torch.Tensor, device: Any = machine.type) -> None:
        check_state(new_state)
        if machine.initialized:
            place = machine.gpu(device)
            if machine.draws is not None:
                machine.draws.add(f"{machine.type}:{place}", "set_rng_state", new_state.numel())
        torch.default_generator.set_state(new_state)

    def set_states(new_states: Any) -> None:
        for place, state in enumerate(new_states):
            set_state(state, place)

    return {
        "manual_seed": manual_seed,
        "manual_seed_all": machine.reseed_all,
        "seed": machine.shuffle,
        "seed_all": lambda: machine.shuffle(all_gpus=True),
        "initial_seed": machine.initial_seed,
        "get_rng_state": get_state,
        "set_rng_state": set_state,
        "get_rng_state_all": lambda: [get_state(place) for place in range(len(machine.visible))],
        "set_rng_state_all": set_states,
        "default_generators": _Generators(machine),
    }


class _Generators:
    """The sequence `torch.cuda.default_generators`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __len__(self) -> int:
        return len(self._machine.visible)

    def __getitem__(self, place: int) -> torch.Generator:
        return self._machine.generator(range(len(self))[place])


class _Selection:
    """The base class of `torch.cuda.device`, which selects a GPU for a block."""

    machine: Machine

    def __init__(self, device: Any) -> None:
        none = device is None or (isinstance(device, int) and device < 0)
        self.idx = HOST if none else self.machine.gpu(device)
        self.prev_idx = HOST

    def __enter__(self) -> None:
        self.prev_idx = self.machine.exchange(self.idx)

    def __exit__(self, *error: object) -> None:
        self.machine.exchange(self.prev_idx)


class _SelectionOf(_Selection):
    """The base class of `torch.cuda.device_of`, which selects the GPU of a tensor for a block."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.device.type == self.machine.type else HOST)


class _Nvtx:
    """The replacement of the NVTX library."""

    rangePushA = rangePop = rangeStartA = rangeEnd = markA = staticmethod(_constant(0))


class _Cudart:
    """The replacement of the CUDA runtime, which programs use to start and stop the profiler."""

    cudaError = types.SimpleNamespace(success=0)

    def __getattr__(self, name: str) -> Any:
        return _constant((_TOTAL - _USED, _TOTAL) if name == "cudaMemGetInfo" else 0)


def _refused_memory(*_: Any, **__: Any) -> Any:
    """Fail as the functions for memory do on a device whose memory `torch.accelerator` does not know."""
    raise RuntimeError("Allocator for mps is not a DeviceAllocator. INTERNAL ASSERT FAILED")


def _install_accelerator(
    machine: Machine, names: dict[str, Any], memory: dict[str, Any], patches: Patches
) -> None:
    """Replace the functions of `torch.accelerator`, which would otherwise ask torch's C++ code."""
    accelerator: Any = torch.accelerator
    if _version() < machine.profile.memory_since:
        names = {**names, **dict.fromkeys(memory, _refused_memory)}
    same = ("is_available", "device_count", "current_stream", "set_stream", "synchronize", *memory)
    renamed = {
        "current_device_index": "current_device",
        "set_device_index": "set_device",
        "device_index": "device",
        "current_device_idx": "current_device",
        "set_device_idx": "set_device",
        "get_memory_info": "mem_get_info",
        "empty_host_cache": "empty_cache",
        **{name: name for name in same},
    }
    owners = [accelerator, getattr(accelerator, "memory", accelerator)]
    for name, other in renamed.items():
        for owner in owners:
            if name in vars(owner):
                patches.set(owner, name, names[other])

    def current_accelerator(check_available: bool = False) -> Any:
        return None if check_available and not names["is_available"]() else torch.device(machine.type)

    patches.set(accelerator, "current_accelerator", current_accelerator)
    dtypes = {getattr(torch, name) for name in _DTYPES if name not in machine.profile.refused}
    capability = _of_gpu(machine, {"supported_dtypes": dtypes})
    for name, value in {"get_device_capability": capability, "Graph": _NoGraph}.items():
        if name in vars(accelerator):
            patches.set(accelerator, name, value)


def _version() -> tuple[int, int]:
    major, minor, *_ = torch.__version__.split(".")
    return int(major), int(minor)
