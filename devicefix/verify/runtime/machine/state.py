"""The simulated machine: its GPUs, what is selected, seeded and written down."""

from __future__ import annotations

import os
import threading
from typing import Any

import torch
from torch.utils._device import DeviceContext

from devicefix.verify.runtime.machine.places import HOST, device, place_of

GPUS = "DEVICEFIX_GPUS"  # how many GPUs the machine has; without it as many as the program selects, or one

# Where the program itself makes a tensor on the CPU. What torch makes beside the tensors that it is given is
# on "cpu" as well to torch, wherever the program believes those to be.
CPU = torch.device("cpu", 0)


class Machine:
    """A machine with GPUs that are played.

    Args:
        gpus: how many there are; None for what the variable GPUS says.
        separate_generators: whether each GPU draws its random numbers from a generator of its own, as on
            CUDA. Otherwise all draw from the CPU's, so that a run on the CPU alone has the same numbers.
        trace: what is made, computed and called on the GPUs is appended to it, None for no trace.
        draws: is told of random numbers: the device, the operation, how many; None to tell nobody.
    """

    def __init__(
        self,
        gpus: int | None = None,
        separate_generators: bool = False,
        trace: list[tuple[Any, ...]] | None = None,
        draws: Any = None,
    ) -> None:
        self._gpus = gpus
        self._visible: list[int] | None = None
        self._selected = _Selected()
        self._seeds: dict[int, torch.Generator] = {}
        self.separate_generators = separate_generators
        self.trace = trace
        self.draws = draws
        self.generators: dict[int, str] = {}  # the kinds of device that the program's own generators are for
        self.default = HOST  # where tensors are made when nothing is said
        self.initialized = False
        self.forked = False  # whether this is the child of a process that had used CUDA
        self.on_cuda = 0  # operations
        self.on_cpu = 0

    @property
    def visible(self) -> list[int]:
        """The numbers of the GPUs that the program sees: settled when it first asks, as on CUDA."""
        if self._visible is None:
            self._visible = self._look()
        return self._visible

    @property
    def is_told(self) -> bool:
        """Whether somebody has said how many GPUs there are."""
        return self._gpus is not None or GPUS in os.environ or "CUDA_VISIBLE_DEVICES" in os.environ

    def _look(self) -> list[int]:
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        told = os.environ.get(GPUS) if self._gpus is None else str(self._gpus)
        if named is None:
            return list(range(int(told or 1)))
        visible: list[int] = []
        for name in named.split(","):
            number = (
                int(name) if name.strip().isdigit() else len(visible) if name.strip()[:3] == "GPU" else -1
            )
            if number < 0 or number in visible or (told and number >= int(told)):
                break  # CUDA ignores what follows as well
            visible.append(number)
        return visible

    @property
    def current(self) -> int:
        """The index of the GPU that this thread has selected."""
        return self._selected.index

    @current.setter
    def current(self, index: int) -> None:
        self._selected.index = index

    def initialize(self) -> None:
        """What happens when a process first uses CUDA.

        Raises:
            RuntimeError: where it can't.
        """
        if self.forked:
            raise RuntimeError(
                "Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
                "multiprocessing, you must use the 'spawn' start method"
            )
        if not self.visible:
            raise RuntimeError("No CUDA GPUs are available")
        self.initialized = True

    def index(self, wanted: Any = None) -> int:
        """The place that a device, a device string, an index or None (the current GPU) stands for.

        Raises:
            RuntimeError: if there is no such GPU.
        """
        if isinstance(wanted, str):
            wanted = torch.device(wanted)
        if isinstance(wanted, torch.device):
            if wanted.type != "cuda":
                return HOST
            wanted = wanted.index
        if not self.initialized or self.forked:
            self.initialize()
        index = self.current if wanted is None else int(wanted)
        if not 0 <= index < len(self.visible):
            raise RuntimeError("CUDA error: invalid device ordinal")
        return index

    def wanted(self, asked: Any) -> torch.device:
        """The device that a program asks for, as operations are told: CPU, or a GPU by its number."""
        if isinstance(asked, torch.Tensor):
            return self.told(place_of(asked))
        if isinstance(asked, str):
            asked = torch.device(asked)
        if isinstance(asked, torch.device) and asked.type not in ("cuda", "cpu"):
            return asked
        return self.told(self.index(asked))

    def told(self, place: int) -> torch.device:
        """How operations are told of a place."""
        return device(place) if place >= 0 else CPU

    def default_device(self) -> torch.device:
        """Where a tensor is made when the program doesn't say, as operations are told."""
        for depth in reversed(range(torch._C._len_torch_function_stack())):
            mode = torch._C._get_function_stack_at(depth)
            if isinstance(mode, DeviceContext):
                return self.wanted(mode.device)
        return CPU if self.default == HOST else device(self.index())

    def generator(self, place: int) -> torch.Generator:
        """The generator of a GPU."""
        if place not in self._seeds:
            self._seeds[place] = torch._C.Generator()
            self.seed(place, 0)
        return self._seeds[place]

    def seed(self, place: int, seed: int) -> None:
        """Seed the generator of a GPU: with the same seed the CPU, and other GPUs, have other numbers."""
        self._seeds.setdefault(place, torch._C.Generator()).manual_seed((int(seed) + 10**6 + place) % 2**64)

    def note(self, kind: str, place: int, *what: Any) -> None:
        """Write down what happened on a GPU, by the number that is printed on the card."""
        if self.trace is not None and place >= 0:
            self.trace.append((kind, self.visible[place], *what))

    def after_fork(self) -> None:
        """To be called in the child."""
        self.forked = self.initialized
        self.on_cuda = self.on_cpu = 0


class _Selected(threading.local):
    index = 0
