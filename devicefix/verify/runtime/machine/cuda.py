"""What torch.cuda and torch.accelerator answer."""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Callable
from typing import Any

import torch

from devicefix.verify.runtime.machine.patches import Patches
from devicefix.verify.runtime.machine.places import HOST
from devicefix.verify.runtime.machine.state import Machine

NAME = "Simulated GPU"
_MEMORY = 16 << 30
_USED = 1 << 20  # what is said to be in use: the truth would be another in each run
_VERSION = "12.6"


def install(machine: Machine, patches: Patches) -> None:
    """Let torch.cuda and torch.accelerator answer for the machine.

    Args:
        machine: the machine.
        patches: what takes it back.
    """
    cuda = Cuda(machine)
    names = {**cuda.devices(), **cuda.memory(), **cuda.random(), **cuda.streams()}
    owners = [torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs]
    for name, value in names.items():
        for owner in owners:
            if owner is torch.cuda or name in vars(owner):
                patches.set(owner, name, value)
    patches.set(torch.version, "cuda", torch.version.cuda or _VERSION)
    patches.set(torch.cuda.nvtx, "_nvtx", _Nvtx)
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    cudnn = sys.modules["torch.backends.cudnn"]
    for name, answer in {"is_available": True, "version": 90100, "is_acceptable": False}.items():
        patches.set(cudnn, name, _says(answer))
    patches.set(torch._C, "_get_accelerator", lambda check=None: torch.device("cuda"))
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        _install_accelerator(accelerator, names, cuda, patches)


def _says(answer: Any) -> Callable[..., Any]:
    return lambda *_, **__: answer


class _NoGraph:
    """torch.cuda.CUDAGraph and torch.cuda.graph."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("the simulated machine has no CUDA graphs")


class Cuda:
    """The functions of torch.cuda, by name.

    Args:
        machine: the machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._streams: dict[int, Any] = {}
        self.made: dict[str, Any] = {}

    def selected(self, device: Any = None) -> int:
        """The index of a GPU that a function is asked about, as an int, string, device or None."""
        place = self._machine.index(device)
        if place == HOST:
            raise ValueError(f"Expected a cuda device, but got: {device}")
        return place

    def noted(self, name: str, answer: Callable[[int], Any]) -> Callable[..., Any]:
        """A function of a device that belongs to what happens on a GPU."""

        def call(device: Any = None) -> Any:
            place = self.selected(device)
            self._machine.note("call", place, name)
            return answer(place)

        return call

    def set_device(self, device: Any) -> None:
        """torch.cuda.set_device."""
        if isinstance(device, int) and device < 0:
            return
        self._machine.current = self.selected(device)
        self._machine.note("call", self._machine.current, "set_device")

    def devices(self) -> dict[str, Any]:
        """What there is, and which one is selected."""
        machine = self._machine
        return {
            "is_available": lambda: bool(machine.visible) and not machine.forked,
            "device_count": lambda: len(machine.visible),
            "current_device": lambda: machine.index(),
            "set_device": self.set_device,
            "device": _selection(self),
            "device_of": _selection_of(self),
            "_exchange_device": self._exchange,
            "_maybe_exchange_device": self._exchange,
            "get_device_name": self.noted("get_device_name", lambda place: NAME),
            "get_device_properties": self.noted("get_device_properties", _properties),
            "get_device_capability": lambda device=None: (8, 0) if self.selected(device) >= 0 else None,
            "get_arch_list": _says(["sm_80"]),
            "can_device_access_peer": lambda device, peer: self.selected(device) != self.selected(peer),
            "is_bf16_supported": _says(True),
            "is_tf32_supported": _says(True),
            "is_initialized": lambda: machine.initialized and not machine.forked,
            "init": machine.initialize,
            "_lazy_init": machine.initialize,
            "_lazy_call": lambda call, **_: call(),
            "_is_in_bad_fork": lambda: machine.forked,
            "synchronize": self.noted("synchronize", lambda place: None),
            "ipc_collect": machine.initialize,
            "cudart": lambda: _Cudart(machine.index()),
            "utilization": lambda device=None: self.selected(device) * 0,
            "temperature": lambda device=None: self.selected(device) * 0,
            "CUDAGraph": _NoGraph,
            "graph": _NoGraph,
            "make_graphed_callables": _NoGraph,
            "is_current_stream_capturing": _says(False),
        }

    def _exchange(self, index: int) -> int:
        old = self._machine.current
        if index >= 0:
            self._machine.current = self.selected(index)
        return old

    def memory(self) -> dict[str, Any]:
        """Numbers that are plausible, and the same in each run."""
        machine = self._machine

        def used(device: Any = None) -> int:
            return _USED if machine.initialized and self.selected(device) >= 0 else 0

        def stats(device: Any = None) -> dict[str, Any]:
            kinds = ("allocated_bytes", "reserved_bytes", "active_bytes")
            return {f"{kind}.all.{when}": used(device) for kind in kinds for when in ("current", "peak")}

        resets = (
            "peak_memory_stats",
            "accumulated_memory_stats",
            "max_memory_allocated",
            "max_memory_cached",
        )
        kinds = ("allocated", "reserved", "cached")
        return {
            "empty_cache": lambda: None,
            **{f"{most}memory_{kind}": used for most in ("", "max_") for kind in kinds},
            **{f"reset_{what}": self.noted(f"reset_{what}", lambda place: None) for what in resets},
            "memory_stats": stats,
            "memory_snapshot": _says([]),
            "memory_summary": lambda device=None, abbreviated=False: f"{NAME}: {used(device)} bytes",
            "list_gpu_processes": lambda device=None: (
                f"GPU:{self.selected(device)}\nno processes are running"
            ),
            "mem_get_info": lambda device=None: (
                (_MEMORY - _USED, _MEMORY) if self.selected(device) >= 0 else None
            ),
            "set_per_process_memory_fraction": lambda fraction, device=None: None,
        }

    def random(self) -> dict[str, Any]:
        """The generators of the GPUs."""
        machine = self._machine

        def manual_seed(seed: int) -> None:
            if machine.forked or not machine.visible:
                return  # CUDA keeps it until it is initialized, too
            machine.seed(machine.current, seed)
            machine.note("call", machine.current, "manual_seed", int(seed))

        def manual_seed_all(seed: int) -> None:
            for place in range(len(machine.visible)):
                machine.seed(place, seed)
            machine.note("call", 0 if machine.visible else HOST, "manual_seed_all", int(seed))

        def get_state(device: Any = "cuda") -> torch.Tensor:
            return machine.generator(self.selected(device)).get_state()

        def set_state(state: torch.Tensor, device: Any = "cuda") -> None:
            machine.generator(self.selected(device)).set_state(state)

        def set_states(states: Any) -> None:
            for place, state in enumerate(states):
                set_state(state, place)

        return {
            "manual_seed": manual_seed,
            "manual_seed_all": manual_seed_all,
            "seed": lambda: manual_seed(torch._C.Generator().seed()),
            "seed_all": lambda: manual_seed_all(torch._C.Generator().seed()),
            "initial_seed": lambda: (
                machine.generator(self.selected()).initial_seed() - 10**6 - machine.current
            ),
            "get_rng_state": get_state,
            "set_rng_state": set_state,
            "get_rng_state_all": lambda: [get_state(place) for place in range(len(machine.visible))],
            "set_rng_state_all": set_states,
            "default_generators": _Generators(machine),
        }

    def current_stream(self, device: Any = None) -> Any:
        """torch.cuda.current_stream."""
        place = self.selected(device)
        return self._streams.get(place) or self.default_stream(place)

    def default_stream(self, device: Any = None) -> Any:
        """torch.cuda.default_stream."""
        return self.made["Stream"](self.selected(device), default=True)

    def set_stream(self, stream: Any) -> None:
        """torch.cuda.set_stream."""
        if stream is not None:
            self._machine.current = stream.device_index
            self._streams[stream.device_index] = stream

    def streams(self) -> dict[str, Any]:
        """Streams and events; everything is done as soon as it has been asked for."""
        self.made = {
            "Stream": _stream(self),
            "Event": _event(self),
            "StreamContext": _stream_context(self),
            "stream": _stream_context(self),
            "set_stream": self.set_stream,
            "current_stream": self.current_stream,
            "default_stream": self.default_stream,
        }
        return self.made


class _Generators:
    """torch.cuda.default_generators."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __len__(self) -> int:
        return len(self._machine.visible)

    def __getitem__(self, place: int) -> torch.Generator:
        return self._machine.generator(range(len(self))[place])


def _properties(place: int) -> Any:
    return types.SimpleNamespace(
        name=NAME,
        major=8,
        minor=0,
        total_memory=_MEMORY,
        multi_processor_count=108,
        is_integrated=0,
        is_multi_gpu_board=0,
        max_threads_per_multi_processor=2048,
        shared_memory_per_block=49152,
        regs_per_multiprocessor=65536,
        warp_size=32,
        L2_cache_size=40 << 20,
        gcnArchName="",
        uuid="00000000-0000-0000-0000-000000000000",
    )


def _selection(cuda: Cuda) -> Any:
    class Selection:
        """torch.cuda.device: a GPU is the selected one for a while."""

        def __init__(self, device: Any) -> None:
            none = device is None or (isinstance(device, int) and device < 0)
            self.idx = HOST if none else cuda.selected(device)
            self.prev_idx = HOST

        def __enter__(self) -> None:
            self.prev_idx = cuda._exchange(self.idx)

        def __exit__(self, *error: object) -> None:
            cuda._exchange(self.prev_idx)

    Selection.__module__, Selection.__qualname__, Selection.__name__ = "torch.cuda", "device", "device"
    return Selection


def _selection_of(cuda: Cuda) -> Any:
    class SelectionOf(_selection(cuda)):  # type: ignore[misc]
        """torch.cuda.device_of: the GPU of a tensor is."""

        def __init__(self, obj: Any) -> None:
            super().__init__(obj.get_device() if obj.is_cuda else HOST)

    return SelectionOf


def _stream(cuda: Cuda) -> Any:
    class Stream:
        """torch.cuda.Stream."""

        device_type = 1
        made = 0

        def __init__(self, device: Any = None, priority: int = 0, default: bool = False, **_: Any) -> None:
            self.device_index = cuda.selected(device)
            self.priority = priority
            if not default:
                Stream.made += 1
            self.stream_id = self.cuda_stream = 0 if default else Stream.made

        @property
        def device(self) -> torch.device:
            return torch.device("cuda", self.device_index)

        def record_event(self, event: Any = None) -> Any:
            event = event or cuda.made["Event"]()
            event.record(self)
            return event

        def wait_event(self, event: Any) -> None: ...

        def wait_stream(self, stream: Any) -> None: ...

        def synchronize(self) -> None: ...

        def query(self) -> bool:
            return True

        def is_capturing(self) -> bool:
            return False

        def __enter__(self) -> Any:
            self._context = cuda.made["stream"](self)
            self._context.__enter__()
            return self

        def __exit__(self, *error: object) -> None:
            self._context.__exit__(*error)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Stream) and self._key() == other._key()

        def __hash__(self) -> int:
            return hash(self._key())

        def _key(self) -> tuple[int, int]:
            return self.stream_id, self.device_index

    Stream.__module__, Stream.__qualname__ = "torch.cuda", "Stream"
    return Stream


def _event(cuda: Cuda) -> Any:
    class Event:
        """torch.cuda.Event."""

        def __init__(
            self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
        ) -> None:
            self._timing = enable_timing
            self._time: float | None = None

        def record(self, stream: Any = None) -> None:
            cuda.selected()
            self._time = time.perf_counter()

        def elapsed_time(self, end: Any) -> float:
            if not (self._timing and end._timing):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if self._time is None or end._time is None:
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            return float(end._time - self._time) * 1000.0

        def wait(self, stream: Any = None) -> None: ...

        def synchronize(self) -> None: ...

        def query(self) -> bool:
            return True

    Event.__module__, Event.__qualname__ = "torch.cuda", "Event"
    return Event


def _event_anywhere(event: Any) -> Any:
    class Event(event):  # type: ignore[misc]
        """torch.Event."""

        def __init__(self, device: Any = None, **options: Any) -> None:
            super().__init__(**options)

    return Event


def _stream_context(cuda: Cuda) -> Any:
    class StreamContext:
        """torch.cuda.stream: a stream is the current one for a while."""

        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            if self.stream is not None:
                self._selected = cuda._machine.current
                self._old = cuda._streams.get(self.stream.device_index)
                cuda.set_stream(self.stream)

        def __exit__(self, *error: object) -> None:
            if self.stream is not None:
                cuda._machine.current = self._selected
                cuda._streams[self.stream.device_index] = self._old

    return StreamContext


class _Nvtx:
    rangePushA = rangePop = rangeStartA = rangeEnd = markA = staticmethod(_says(0))


class _Cudart:
    """What is used of the CUDA runtime itself: the profiler is started and stopped by it."""

    cudaError = types.SimpleNamespace(success=0)

    def __init__(self, place: int) -> None:
        self.place = place

    def __getattr__(self, name: str) -> Any:
        if name == "cudaMemGetInfo":
            return _says((_MEMORY - _USED, _MEMORY))
        return _says(0)


def _install_accelerator(accelerator: Any, names: dict[str, Any], cuda: Cuda, patches: Patches) -> None:
    """Torch.accelerator asks C++ for what torch.cuda has just been told."""
    same = ("is_available", "device_count", "current_stream", "set_stream", "synchronize", *cuda.memory())
    renamed = {
        "current_device_index": "current_device",
        "set_device_index": "set_device",
        "device_index": "device",
    }
    renamed |= {"current_device_idx": "current_device", "set_device_idx": "set_device"}
    renamed |= {"get_memory_info": "mem_get_info", **{name: name for name in same}}
    owners = [accelerator, getattr(accelerator, "memory", accelerator)]
    patches.set(torch, "Stream", names["Stream"])
    patches.set(torch, "Event", _event_anywhere(names["Event"]))
    for name, other in renamed.items():
        for owner in owners:
            if name in vars(owner):
                patches.set(owner, name, names[other])
    available = names["is_available"]
    patches.set(
        accelerator,
        "current_accelerator",
        lambda check_available=False: None if check_available and not available() else torch.device("cuda"),
    )
