"""The simulated machine.

Every tensor is in the CPU's memory; an attribute of its storage names the GPU that it is on. Operations
compute on the CPU, copy where CUDA copies, and fail where CUDA fails. See docs/simulation.md.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import torch

from devicefix.verify.runtime.eager import in_threads, run_eagerly
from devicefix.verify.runtime.ending import after_fork, at_end
from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.imported import import_as_usual, import_within
from devicefix.verify.runtime.machine import (
    autocast,
    checks,
    cuda,
    lacking,
    making,
    parallel,
    places,
    saving,
    tensors,
    tools,
)
from devicefix.verify.runtime.machine.draws import Draws
from devicefix.verify.runtime.machine.kernels import Kernels, Transparent
from devicefix.verify.runtime.machine.moves import Moves
from devicefix.verify.runtime.machine.patches import Patches
from devicefix.verify.runtime.machine.state import GPUS, Machine
from devicefix.verify.runtime.plan import Plan
from devicefix.verify.runtime.profiles import PROFILES
from devicefix.verify.runtime.site import Sites

__all__ = ["GPUS", "Machine", "Simulation", "install", "round_alike"]

# These ask torch's build and functions: one collects the functions, the other needs a build for CUDA.
_COLLECTING = ("torch._dynamo", "torch._inductor.cudagraph_trees")


def install(plan: Plan, events: Events, sites: Sites) -> None:
    """Simulate a machine in this process until it ends.

    Args:
        plan: the plan of the run.
        events: the recorder of random draws, moves and the number of operations.
        sites: finds the user's line.
    """
    if plan.simulated == "cuda" and os.environ.get("CUDA_VISIBLE_DEVICES") == "":  # it hides the real GPUs
        del os.environ["CUDA_VISIBLE_DEVICES"]
    draws, moves = Draws(events, sites), Moves(events, sites)
    machine = Machine(autocast=plan.autocast is None, profile=PROFILES[plan.simulated])
    if plan.watch:
        machine.draws, machine.moves = draws, moves
    else:
        lacking.install(events, sites)
    Simulation(machine).__enter__()

    def finish() -> None:
        draws.finish()
        counts = {
            "ran_on": machine.profile.label,
            "cuda": machine.on_gpu,
            "cpu": machine.on_cpu,
            "lowered": machine.lowered,
            "counted": machine.counted,
        }
        events.emit("operations", gpus=machine.fixed, **counts)

    def restart() -> None:
        draws.restart()
        moves.restart()
        machine.after_fork()

    at_end(finish)
    after_fork(restart)


def round_alike() -> None:
    """Make a run on the plain CPU round as the simulated machine does.

    Torch computes the backward pass of some operations, such as `prod`, differently while a mode watches the
    operations. So a run to compare with the simulated machine needs a mode too.
    """
    run_eagerly()
    mode: Any = Transparent()  # type: ignore[no-untyped-call]
    patches = Patches()
    patches.set(torch.Tensor, "__new__", making.new_tensor)
    patches.set(torch.Tensor, "as_subclass", making.as_subclass)
    patches.set(threading.Thread, "_bootstrap_inner", in_threads(mode))
    import_within(patches.undone, *_COLLECTING)
    mode.__enter__()


class Simulation:
    """A context that simulates a machine, in this thread and all threads that it starts.

    Args:
        machine: the machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._patches = Patches()
        self._kernels = Kernels(machine)

    def __enter__(self) -> Machine:
        places.prepare(self._machine.profile)
        for part in (tensors, making, cuda, saving, parallel):
            part.install(self._machine, self._patches)
        checks.install(self._patches)
        tools.install(self._machine, self._patches)
        optimizer: Any = sys.modules["torch.optim.optimizer"]  # its variants for CUDA round differently
        self._patches.set(optimizer, "_get_foreach_kernels_supported_devices", list)
        autocast.install(self._machine, self._patches)
        self._patches.set(threading.Thread, "_bootstrap_inner", in_threads(self._kernels))
        import_within(self._patches.undone, *_COLLECTING)
        self._kernels.__enter__()
        return self._machine

    def __exit__(self, *error: object) -> None:
        self._kernels.__exit__(None, None, None)
        import_as_usual(*_COLLECTING)
        self._patches.swap()
