"""Runs on the simulated CUDA machine that show why a program fails on a CPU."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from devicefix.verify.copying import is_small
from devicefix.verify.program import Program
from devicefix.verify.runs import Runs, Task, Tick
from devicefix.verify.verdict import EXIT, Failure, Run, Verdict, judge

_SECONDS = 60.0  # a failure that took longer is explained without runs, unless `--explain` asks for them
_FILES, _BYTES = 20_000, 256 << 20
GPUS = (2, 4, 8)
_VARYING = re.compile(r"0x[0-9a-f]+|\b(cuda|cpu)(:\d+)?\b|\d+(\.\d+)?(e-?\d+)?")


class Trials:
    """The runs of a program that failed, each in a copy of its folder, without its output.

    Args:
        task: what was run.
        program: the rewritten program.
        failed: the run that failed.
        folder: the folder for the runs' own files.
        tick: called regularly with the name of the run and its seconds so far.

    Attributes:
        runs: the runs.
    """

    def __init__(self, task: Task, program: Program, failed: Run, folder: Path, tick: Tick) -> None:
        self._task = task
        self._failed = failed
        self.runs = Runs(task, program, folder / "trials", tick)
        self._counts = False  # whether the program asks for the number of GPUs

    @property
    def refused(self) -> str:
        """Why the program is not run again; empty if it is."""
        if self._task.explain:
            return ""
        if self._task.explain is not None:
            return "these runs are disabled; to enable them, use `devicefix verify --explain`"
        if self._failed.seconds > _SECONDS:
            slow = f"the failed run took more than {_SECONDS:.0f} s"
            return f"{slow}; use `devicefix verify --explain` to run the original anyway"
        if not is_small(self._task.root, _FILES, _BYTES):
            return "its folder is large; use `devicefix verify --explain` to copy and run it anyway"
        return ""

    @cached_property
    def original(self) -> Run:
        """The run of the original program on the simulated CUDA machine."""
        return self._run(self.runs.original, "original", "simulated")

    def gpus(self) -> int:
        """Return with how many simulated GPUs the original runs, where one is not enough; 0 if none helps."""
        more = GPUS if self._counts and self._task.gpus is None else ()
        runs = ((n, self._run(self.runs.original, f"{n} GPUs", "simulated", gpus=n)) for n in more)
        return next((n for n, run in runs if passed(run)), 0)

    def rewritten(self) -> Run:
        """Run the rewritten program on the simulated CUDA machine."""
        return self._run(self.runs.rewritten, "rewritten", "simulated")

    def again(self) -> Run:
        """Run the rewritten program once more as it was run."""
        return self._run(self.runs.rewritten, "again", self._task.machine)

    def answered(self) -> Run:
        """Run the original program on the CPU, which answers its requests for CUDA."""
        return self._run(self.runs.original, "answered", "cpu", keep_going=True)

    def _run(self, program: Program, name: str, machine: str, **options: Any) -> Run:
        # The next optimizer step is behind the failure.
        steps = min(self._failed.steps + 1, self._task.steps or self._failed.steps + 1)
        timeout = self._task.limits.timeout
        left = None if timeout is None else max(timeout - self._failed.seconds - self.runs.seconds, 1.0)
        options |= {"limits": replace(self._task.limits, timeout=left), "steps": steps}
        options |= {"copies": False, "compare": False, "scratch": True, "silent": True}
        result = self.runs.run(program, name, machine, **options)
        self._counts |= any(event.get("counted") for event in result.events)
        return judge(result.ended, result.events, program)


def passed(run: Run) -> bool:
    """Return whether a run ended without an error, or took one more optimizer step than the failed one."""
    return run.verdict is Verdict.PASS or run.limit == "steps"


def works(run: Run) -> bool:
    """Return whether a run ended without an error, whatever else it shows."""
    return not run.status and run.limit in (None, "steps") and run.verdict is not Verdict.TROUBLE


def alike(one: Run, other: Run) -> bool:
    """Return whether two runs failed with the same error, up to numbers and names of devices."""
    if one.failure is None or other.failure is None:
        return one.failure is other.failure and one.reason == other.reason
    if one.failure.kind != other.failure.kind:
        return False
    if one.failure.kind == EXIT:
        return one.failure == other.failure
    same_place = one.failure.frames[-1:] == other.failure.frames[-1:]
    general = one.failure.kind in ("RuntimeError", "Exception")  # torch raises them for anything
    return _plain(one.failure) == _plain(other.failure) or (same_place and not general)


def _plain(failure: Failure) -> str:
    return _VARYING.sub("…", failure.error)
