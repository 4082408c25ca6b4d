"""The rewritten program against the original: on CUDA or a simulation of it, and on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from devicefix.verify import compare, runs
from devicefix.verify.program import Program
from devicefix.verify.runs import Result, Task, Tick
from devicefix.verify.verdict import Run, Verdict, judge

REAL = 1e-4  # how far apart, relative to their size, two runs on a GPU may be: its sums have no fixed order
ALIKE = 1e-2  # the same for a GPU and its simulation


@dataclass(slots=True)
class Comparison:
    """What --compare has found.

    Attributes:
        machine: "simulated" or "cuda".
        observations: how many the original's run made.
        seconds: of the original and of the rewritten program on that machine.
        failure: why the original is no measure; empty if it is one.
        on_cuda: differences between the original and the rewritten program there.
        on_cpu: differences between there and the CPU.
        notes: what else differs, and may.
    """

    machine: str
    observations: int = 0
    seconds: tuple[float, float] = (0.0, 0.0)
    failure: str = ""
    on_cuda: list[str] = field(default_factory=list)
    on_cpu: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Comparing:
    """The runs of one comparison.

    Args:
        task: what to run.
        made: the rewritten modules.
        folder: where the runs' own files go.
        tick: told how long each takes.
    """

    def __init__(self, task: Task, made: Program, folder: Path, tick: Tick) -> None:
        self.task = task
        self.made = made
        self.original = Program(made.roots)
        self.folder = folder
        self.tick = tick

    def against(self, on_cpu: Result) -> Comparison:
        """Compare the rewritten program's run on the CPU with its and the original's on CUDA.

        Random numbers that a GPU draws are others than a CPU's, whatever the seed: with a real one, the
        numbers on the CPU are held against those on the simulation of it.
        """
        machine = "cuda" if has_cuda(self.task.command[0]) else "simulated"
        first = self._run(self.original, "original", machine)
        second = self._run(self.made, "rewritten", machine)
        found = Comparison(machine, compare.observations(first.events))
        found.seconds = first.ended.seconds, second.ended.seconds
        found.failure = _failure(first, self.original)
        if found.failure:
            return found
        failure = _failure(second, self.made)
        if failure:
            found.on_cuda.append(f"the rewritten program fails: {failure}")
            return found
        tolerance = self.task.tolerance
        real = max(tolerance, REAL) if machine == "cuda" else tolerance
        found.on_cuda += self._told(first, second, True, real, found)
        simulated = second
        if machine == "cuda":
            simulated = self._run(self.made, "simulated", "simulated")
            if failure := _failure(simulated, self.made):
                found.notes.append(f"not compared with the CPU, since the simulation fails: {failure}")
                return found
            unlike = compare.differences(second.events, simulated.events, devices=False, tolerance=ALIKE)
            found.notes += [f"the simulation is not as the GPU: {compare.describe(each)}" for each in unlike]
        found.on_cpu += self._told(simulated, on_cpu, False, tolerance, found)
        return found

    def _run(self, modules: Program, name: str, machine: str) -> Result:
        where = "CUDA" if machine == "cuda" else "simulated CUDA"
        what = "the original" if modules is self.original else "the rewritten program"
        return runs.run(self.task, modules, self.folder / name, self.tick, f"{what} on {where}", machine)

    def _told(
        self, one: Result, other: Result, devices: bool, tolerance: float, found: Comparison
    ) -> Iterator[str]:
        for each in compare.differences(one.events, other.events, devices=devices, tolerance=tolerance):
            if each.expected:
                found.notes.append(compare.describe(each))
            else:
                yield compare.describe(each)


def _failure(result: Result, modules: Program) -> str:
    """Why a run has failed, and where; empty if it has not."""
    run = judge(result.ended, result.events, modules)
    return f"{run.reason}{_at(run)}" if run.verdict in (Verdict.FAIL, Verdict.TROUBLE) else ""


def _at(run: Run) -> str:
    frames = run.failure.frames if run.failure else ()
    return f" ({os.path.relpath(frames[-1].file)}:{frames[-1].line})" if frames else ""


def has_cuda(python: str) -> bool:
    """Whether the machine has a GPU that torch can use."""
    python = python if "python" in os.path.basename(python) else sys.executable
    asked = "import torch; raise SystemExit(not torch.cuda.is_available())"
    return subprocess.run([python, "-c", asked], capture_output=True).returncode == 0
