"""Comparison of the rewritten program with the original, on CUDA or the simulated CUDA machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devicefix.files.system import relative
from devicefix.verify.compare.alignment import Unsteady, common, differences, unsteady
from devicefix.verify.compare.devices import as_on_cuda
from devicefix.verify.compare.difference import Difference
from devicefix.verify.compare.unreached import unreached
from devicefix.verify.compare.wording import CONTROL_FLOW, describe, hint
from devicefix.verify.program import Program
from devicefix.verify.runs import Result, Runs, Task, Tick
from devicefix.verify.runtime.plan import Use
from devicefix.verify.runtime.profiles import PROFILES
from devicefix.verify.trials import GPUS
from devicefix.verify.verdict import Verdict, judge

REAL = 1e-4  # the relative tolerance between two runs on a GPU, whose sums have no fixed order
ALIKE = 1e-2  # the same between a GPU and its simulation
# Further runs of both programs that a difference must last, and where other numbers of its line vary.
ROUNDS, MOST_ROUNDS = 2, 6


@dataclass(slots=True)
class Comparison:
    """The result of `--compare`.

    Attributes:
        machine: "simulated" or "cuda".
        accelerator: the type of the simulated devices that the rewritten program ran on; empty for none.
        observations: the number of observations in the run of the original.
        compared: how many the runs on CUDA and on the CPU have in common; None if they were not compared.
        seconds: the durations of the original and of the rewritten program on that machine.
        failure: why the original failed; empty if it did not.
        on_cuda: the differences between the original and the rewritten program on that machine.
        on_cpu: the differences between the rewritten program on that machine and on the CPU.
        notes: expected differences, and remarks on the simulation.
        alike: whether the rewritten program fails on that machine as the original does; None if that passes.
        hints: what the first difference between that machine and the CPU may come from.
        output: the last lines of the output of the program that failed on that machine.
    """

    machine: str
    accelerator: str = ""
    observations: int = 0
    compared: int | None = None
    seconds: tuple[float, float] = (0.0, 0.0)
    failure: str = ""
    on_cuda: list[str] = field(default_factory=list)
    on_cpu: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    alike: bool | None = None
    hints: list[str] = field(default_factory=list)
    output: tuple[str, ...] = ()


class CudaComparison:
    """The runs of one comparison.

    Args:
        task: what to run.
        program: the rewritten program.
        folder: the folder for the runs' own files.
        tick: called regularly with the name of the run and its seconds so far.

    Attributes:
        runs: the runs.
    """

    def __init__(self, task: Task, program: Program, folder: Path, tick: Tick) -> None:
        self._task = task
        self.runs = Runs(task, program, folder / "compared", tick)
        self._ignored: Unsteady = frozenset()
        self._gpus = task.gpus

    def against(self, first: Result) -> Comparison:
        """Compare the rewritten program's run on the CPU with both programs on CUDA.

        A GPU draws other random numbers than a CPU, whatever the seed. So on a machine with a GPU, the
        numbers on the CPU are compared with those on the simulated CUDA machine. A run on simulated devices
        of another type is compared with the original on the simulated CUDA machine alone.

        Args:
            first: the run of the rewritten program on the CPU, or on these devices.
        """
        kind = self._task.accelerator
        machine = "cuda" if not kind and has_cuda(self._task.command[0]) else "simulated"
        found = Comparison(machine, kind)
        original = self._run_original(machine, found)
        rewritten = first if kind else self._run("rewritten", machine)
        found.observations = common(original.events, original.events, frozenset())
        found.seconds = original.ended.seconds, rewritten.ended.seconds
        found.failure = _failure(original, self.runs.original)
        failure = _failure(rewritten, self.runs.rewritten)
        if found.failure:
            found.output = original.output
            found.alike = failure == found.failure
            return found
        if failure:
            found.output = rewritten.output
            found.on_cuda.append(f"the rewritten program fails: {failure}")
            return found
        for run, name in ((original, "original"), (rewritten, "rewritten program")):
            if run.ended.limit:
                reached = f"the {name} reached the {run.ended.limit} limit on {kind.upper() or 'CUDA'}"
                found.notes.append(f"{reached}: later values are not compared")
        self._original, self._machine = original, machine
        self._real = max(self._task.tolerance, REAL) if machine == "cuda" else self._task.tolerance

        def unlike(run: Result) -> list[Difference]:
            how: Any = {"tolerance": self._real, "ignored": self._ignored}
            both = original.events, run.events
            one, other = [as_on_cuda(each, PROFILES[kind]) for each in both] if kind else both
            return differences(one, other, same_machine=True, **how)

        found.on_cuda += _faults(self._lasting(unlike, rewritten, kind or machine), found)
        if kind:
            self._mention(found)
            return found
        simulated = self._simulated(rewritten, found) if machine == "cuda" else rewritten
        if simulated is not None:
            found.on_cpu += self._on_cpu(simulated, first, found)
        self._mention(found)
        return found

    def _lasting(
        self, unlike: Callable[[Result], list[Difference]], other: Result, machine: str
    ) -> list[Difference]:
        """Return the differences of a run that further runs show too, but not those of the original.

        Args:
            unlike: returns the differences of a run from the one that it is compared with.
            other: the run of the rewritten program.
            machine: the kind of machine that it was on.
        """
        for number in range(MOST_ROUNDS):
            varying = {(each.file, each.line) for each in self._ignored}
            faults = [each for each in unlike(other) if not each.expected]
            if not any(number < ROUNDS or (each.file, each.line) in varying for each in faults):
                break
            name = f"original-{machine}-{number}"
            again = self._run(name, self._machine, self.runs.original)
            self._ignored |= unsteady(self._original.events, again.events, tolerance=self._real)
            lasting = {each.place for each in unlike(self._run(f"again-{name}", machine))}
            self._ignored |= {each.place for each in unlike(other) if not each.expected} - lasting
        return unlike(other)

    def _mention(self, found: Comparison) -> None:
        """Add a note on what was not compared."""
        shown = dict.fromkeys(
            f"{each.kind} at {relative(each.file)}:{each.line}" if each.file else each.kind
            for each in sorted(self._ignored)
        )
        if shown:
            found.notes.append(f"not compared because of variation between runs: {'; '.join(shown)}")

    def _on_cpu(self, simulated: Result, on_cpu: Result, found: Comparison) -> Iterator[str]:
        """Yield the differences between the rewritten program on simulated CUDA and on the CPU.

        Autocast lowers the precision of other operations on a CPU, or of none. So a program that uses it runs
        once more on simulated CUDA, in the precision of the CPU.

        Args:
            simulated: the run on the simulated CUDA machine.
            on_cpu: the run on the CPU.
            found: the comparison, to which notes are added.
        """
        one, other = simulated.events, on_cpu.events
        if lowered := _dtypes(one, "cuda"):
            alike = self._run("as on a CPU", "simulated", autocast=_uses(other, "cpu"))
            low = _dtypes(other, "cpu")
            if failure := _failure(alike, self.runs.rewritten):
                precision = "in the CPU's precision" if low else "without autocast"
                fails = f"the program fails {precision}: {failure}"
                found.notes.append(f"not compared with the CPU, because {fails}")
                return
            one = alike.events
            on_cuda = f"on CUDA, and in {low} for other operations on a CPU" if low else "only on CUDA"
            precision = "the CPU's precision" if low else "full precision"
            computes = f"autocast computes in {lowered} {on_cuda}"
            found.notes.append(f"{computes}, so the comparison with the CPU uses {precision}")

        def unlike(run: Result) -> list[Difference]:
            how: Any = {"tolerance": self._task.tolerance, "ignored": self._ignored}
            return list(unreached(differences(one, run.events, same_machine=False, **how), one, run.events))

        lasting = self._lasting(unlike, on_cpu, "cpu")
        found.observations -= sum(each.number > 0 for each in self._ignored)
        found.compared = common(one, other, self._ignored)
        if found.observations and not found.compared:
            found.hints.append(CONTROL_FLOW)
            yield "none of the lines that read a tensor on CUDA runs on the CPU"
        found.hints += dict.fromkeys(hint(difference) for difference in lasting if not difference.expected)
        yield from _faults(lasting, found)

    def _simulated(self, real: Result, found: Comparison) -> Result | None:
        """Run the rewritten program on the simulated CUDA machine.

        Args:
            real: its run on the GPU.
            found: the comparison, to which notes on the simulation are added.

        Returns:
            The run, or None if it failed.
        """
        simulated = self._run("simulated", "simulated")
        if failure := _failure(simulated, self.runs.rewritten):
            found.notes.append(f"not compared with the CPU, because the simulation fails: {failure}")
            return None
        unlike = differences(real.events, simulated.events, same_machine=False, tolerance=ALIKE)
        found.notes += [f"the simulation differs from the GPU: {describe(each)}" for each in unlike]
        return simulated

    def _run_original(self, machine: str, found: Comparison) -> Result:
        """Run the original, with more simulated GPUs if it counts them and fails with one."""
        first = self._run("original", machine, self.runs.original)
        counts = any(event.get("counted") for event in first.events)
        is_free = machine == "simulated" and not found.accelerator and self._gpus is None
        for number in GPUS if is_free and counts and _failure(first, self.runs.original) else ():
            self._gpus = number
            more = self._run(f"{number} GPUs", machine, self.runs.original)
            if not _failure(more, self.runs.original):
                found.notes.append(
                    f"the simulated machine has {number} GPUs, because the original needs them"
                )
                return more
        self._gpus = self._task.gpus
        return first

    def _run(self, name: str, machine: str, program: Program | None = None, **options: Any) -> Result:
        """Run a program, the rewritten one by default; the run on the CPU has shown its output."""
        program = program or self.runs.rewritten
        return self.runs.run(program, name, machine, silent=True, gpus=self._gpus, **options)


def _uses(events: list[dict[str, Any]], device: str) -> list[Use]:
    """Return where a run uses autocast or a gradient scaler for a kind of device."""
    own = (each for each in events if each["kind"] == "autocast" and each["device"] == device)
    return [(event["file"], event["line"], event["what"]) for event in own]


def _dtypes(events: list[dict[str, Any]], device: str) -> str:
    """Return the low precisions of autocast for a kind of device in a run; empty without any."""
    return " and ".join(sorted({what for _, _, what in _uses(events, device)} & {"bfloat16", "float16"}))


def _faults(unlike: Iterable[Difference], found: Comparison) -> Iterator[str]:
    """Yield the descriptions of faults; those of expected differences become notes."""
    for difference in unlike:
        if difference.expected:
            found.notes.append(describe(difference))
        else:
            yield describe(difference)


def _failure(result: Result, modules: Program) -> str:
    """Return why and where a run failed; empty if it did not."""
    run = judge(result.ended, result.events, modules)
    frames = run.failure.frames if run.failure else ()
    at = f" ({relative(frames[-1].file)}:{frames[-1].line})" if frames else ""
    return f"{run.reason}{at}" if run.verdict in (Verdict.FAIL, Verdict.TROUBLE) else ""


def has_cuda(python: str) -> bool:
    """Return whether this machine has a GPU that torch can use.

    Args:
        python: the first word of the command, which may be a Python interpreter.
    """
    python = python if "python" in os.path.basename(python) else sys.executable
    question = "import torch; raise SystemExit(not torch.cuda.is_available())"
    command = [python, "-c", question]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode == 0
