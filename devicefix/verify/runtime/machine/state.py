"""The state of the simulated machine: its GPUs, the selected one, and generators."""

from __future__ import annotations

import os
import threading
import types
from typing import Any

import torch
from torch.utils import backend_registration
from torch.utils._device import DeviceContext

from devicefix.verify.runtime.machine.places import FREE, HOST, device, place_of
from devicefix.verify.runtime.profiles import CUDA, Profile

GPUS = "DEVICEFIX_GPUS"  # the number of GPUs; by default one, and others if the program names them
_MOST = 16  # GPUs that the program can name

# The device for tensors that the program itself creates on the CPU. Tensors that torch creates internally
# have the device "cpu", wherever the operands are on the simulated machine.
CPU = torch.device("cpu", 0)


class Machine:
    """The state of a simulated machine. Its GPUs are those of CUDA, or accelerators of another type.

    Args:
        gpus: the number of GPUs; None for the number in the environment variable GPUS.
        draws: the recorder of random draws, or None.
        autocast: whether autocast for CUDA lowers the precision as on CUDA.
        profile: the type of its GPUs.

    Attributes:
        profile: the type of its GPUs.
        type: the name of this type in `torch.device`.
        module: the module of torch for it, such as `torch.cuda`.
        moves: the recorder of moves between devices, or None.
        fixed: the numbers of the GPUs, once the program has requested them.
        selected: has the index of the GPU that this thread has selected.
    """

    def __init__(
        self, gpus: int | None = None, draws: Any = None, autocast: bool = True, profile: Profile = CUDA
    ) -> None:
        self.profile, self.type = profile, profile.type
        self.module: Any = getattr(torch, self.type, None) or _extension(self.type)
        self._gpus = gpus
        self.fixed: list[int] | None = None
        self.selected = _Selected()
        self._seeds: dict[int, torch.Generator] = {}
        self.draws = draws
        self.moves: Any = None
        self.autocast = autocast
        self.generators: dict[int, str] = {}  # the device types of the program's generators
        self.default = HOST  # the place for new tensors
        self.initialized = False
        self.asked = False  # whether `is_available` was called, which no fork survives either
        self.counted = False  # whether the program asked for the number of GPUs
        self.gloo = False  # whether processes communicate by what has no tensors on these devices
        self.forked = False  # whether this is the fork of a process that used CUDA
        self.on_gpu = 0  # the number of operations
        self.on_cpu = 0
        self.lowered = 0  # of the operations on GPUs, those whose precision autocast lowers

    @property
    def tensor_types(self) -> Any:
        """The module with types of tensors on the GPUs; None where torch has none."""
        return self.module if self.type == "cuda" or self.profile.custom else None

    @property
    def visible(self) -> list[int]:
        """The numbers of the GPUs that the program sees, fixed at its first request as on CUDA."""
        if self.fixed is None:
            self.fixed = self._visible_gpus()
        return self.fixed

    def device_count(self) -> int:
        """Return the number of GPUs."""
        self.counted = True
        return len(self.visible)

    @property
    def seeded(self) -> list[int]:
        """The numbers of the GPUs, which seeds don't fix: torch defers them until CUDA is initialized."""
        return self._visible_gpus() if self.fixed is None else self.fixed

    @property
    def is_explicit(self) -> bool:
        """Return whether the number of GPUs was set explicitly."""
        named = GPUS in os.environ or self.profile.visible in os.environ
        return self.profile.single or self._gpus is not None or named

    def _visible_gpus(self) -> list[int]:
        if self.profile.single:
            return [0]
        named = os.environ.get(self.profile.visible)
        count = os.environ.get(GPUS) if self._gpus is None else str(self._gpus)
        if named is None:
            return list(range(int(count or 1)))
        visible: list[int] = []
        for name in map(str.strip, named.split(",")):
            number = int(name) if name.isdigit() else len(visible) if name[:3] == "GPU" else -1
            if number < 0 or number in visible or (count and number >= int(count)):
                break  # CUDA ignores the rest too
            visible.append(number)
        return visible

    def is_available(self) -> bool:
        """Return whether there is a GPU. This ends CUDA in later forks, unless NVML answers.

        https://docs.pytorch.org/docs/stable/generated/torch.cuda.is_available.html
        """
        self.asked = self.asked or os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK") != "1"
        return bool(self.visible) and not self.forked

    def initialize(self) -> None:
        """Initialize CUDA in this process.

        Raises:
            RuntimeError: there is no GPU, or this is the fork of a process that used CUDA.
        """
        if self.forked:
            advice = (
                f"To use {self.profile.label} with multiprocessing, you must use the 'spawn' start method"
            )
            raise RuntimeError(f"Cannot re-initialize {self.profile.label} in forked subprocess. {advice}")
        if not self.visible:
            raise RuntimeError(f"No {self.profile.label} GPUs are available")
        self.initialized = True

    def index(self, wanted: Any = None) -> int:
        """Return the place of a device.

        Args:
            wanted: a device, a device string, an index, or None for the current GPU.

        Raises:
            RuntimeError: there is no such GPU.
        """
        if isinstance(wanted, str):
            wanted = torch.device(wanted)
        if isinstance(wanted, torch.device):
            if wanted.type != self.type:
                return HOST
            wanted = wanted.index
        if not self.initialized or self.forked:
            self.initialize()
        index = self.selected.index if wanted is None else int(wanted)
        if not 0 <= index < (len(self.visible) if self.is_explicit else _MOST):
            raise RuntimeError(f"{self.profile.label} error: invalid device ordinal")
        return index

    def gpu(self, device: Any = None) -> int:
        """Return the index of a GPU.

        Args:
            device: a device, a device string, an index, or None for the current GPU.

        Raises:
            RuntimeError: there is no such GPU.
            ValueError: the device is not a GPU.
        """
        place = self.index(device)
        if place == HOST:
            raise ValueError(f"Expected a {self.type} device, but got: {device}")
        return place

    def check_pinning(self) -> None:
        """Check that memory can be pinned.

        Raises:
            RuntimeError: it cannot.
        """
        if not self.profile.pins:
            there = f'a tensor on device "cpu" to a storage on different device "{device(0)}"'
            rule = "This is no longer allowed; the devices must match."
            raise RuntimeError(f"Attempted to set the storage of {there}. {rule}")

    def exchange(self, index: int) -> int:
        """Select a GPU, unless the index is negative, and return the index of the previous one."""
        old = self.selected.index
        if index >= 0:
            self.selected.index = self.gpu(index)
        return old

    def seen(self, place: int) -> int:
        """Return the place that the program sees for the place of a tensor or storage."""
        if place == FREE:
            return self.selected.index if self.initialized else HOST
        return place

    def wanted(self, asked: Any) -> torch.device:
        """Return the device argument to pass to operations for a device that the program requests.

        Args:
            asked: a device, a device string, an index, or a tensor on the device.
        """
        if isinstance(asked, torch.Tensor):
            return self.device_for(place_of(asked))
        if isinstance(asked, str):
            asked = torch.device(asked)
        if isinstance(asked, torch.device) and asked.type not in (self.type, "cpu"):
            return asked
        return self.device_for(self.index(asked))

    def device_for(self, place: int) -> torch.device:
        """Return the device argument to pass to operations for a place."""
        return device(place) if place >= 0 else CPU

    def default_device(self) -> torch.device:
        """Return the device argument for a new tensor if the program names no device."""
        for depth in reversed(range(torch._C._len_torch_function_stack())):
            mode = torch._C._get_function_stack_at(depth)
            if isinstance(mode, DeviceContext):
                return self.wanted(mode.device)
        return CPU if self.default == HOST else device(self.index())

    def generator(self, place: int) -> torch.Generator:
        """Return the random generator of a GPU. The draws themselves are those of the CPU's."""
        if place not in self._seeds:
            self._seeds[place] = torch._C.Generator()
            self._seeds[place].manual_seed(0)
        return self._seeds[place]

    def reseed(self, place: int, seed: int) -> None:
        """Seed the generator of a GPU for the program, which is recorded with the random draws."""
        self.generator(place).manual_seed(int(seed) % 2**64)
        if self.draws is not None:
            self.draws.add(str(device(place)), "manual_seed", int(seed))

    def reseed_all(self, seed: int) -> None:
        """Seed the generators of all GPUs for the program."""
        for place in range(len(self.seeded)):
            self.reseed(place, seed)

    def shuffle(self, all_gpus: bool = False) -> None:
        """Seed the generator of the current GPU, or of all, with a random number."""
        chosen = torch._C.Generator().seed()
        for place in range(len(self.seeded)):
            if all_gpus or place == self.selected.index:
                self.generator(place).manual_seed(chosen)

    def initial_seed(self) -> int:
        """Return the seed of the current GPU's generator."""
        return self.generator(self.gpu()).initial_seed()

    def after_fork(self) -> None:
        """Reset the state in a forked process."""
        self.forked = self.initialized or self.asked
        self.on_gpu = self.on_cpu = self.lowered = 0


def _extension(kind: str) -> types.ModuleType:
    """Add the module for a type of device that torch knows by an extension only."""
    if kind not in ("hpu", "mtia"):  # torch has the names of these
        backend_registration.rename_privateuse1_backend(kind)
    module = types.ModuleType(f"torch.{kind}")
    torch._register_device_module(kind, module)  # type: ignore[no-untyped-call]
    return module


class _Selected(threading.local):
    index = 0
