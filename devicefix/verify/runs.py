"""One run of a program, in its folder or a scratch copy of it, on one kind of machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from devicefix.files.signals import temporary_folder
from devicefix.verify.commands import Command, Ended, Limits
from devicefix.verify.copying import place
from devicefix.verify.launch import run_command
from devicefix.verify.program import Program
from devicefix.verify.runtime.events import read
from devicefix.verify.runtime.plan import Plan, Use
from devicefix.verify.runtime.profiles import PROFILES
from devicefix.verify.scratch import Scratch
from devicefix.verify.stdin import Input

LINES = 15  # of the output of a program that failed
_TAIL = 8_000  # bytes of it to look at
_MACHINES = {name: f"a simulated {profile.label}" for name, profile in PROFILES.items()}
_MACHINES |= {"cpu": "the CPU", "simulated": "simulated CUDA", "cuda": "CUDA"}

Tick = Callable[[str, float], None]  # called with the name of a run and its seconds so far


@dataclass(frozen=True, slots=True)
class Task:
    """A command to verify, and the way to do it.

    Attributes:
        command: the words of the command.
        folder: the folder to run it in.
        root: the folder to copy for a scratch run.
        sources: the files and folders to rewrite.
        limits: the limits of each run.
        steps: the number of optimizer steps to stop after, or None.
        keep_going: whether to answer requests for CUDA with the CPU.
        copies: whether to look for copy hazards.
        compare: whether to compare with the original on CUDA.
        accelerator: the type of the simulated devices to run the rewritten program on; empty for the CPU.
        tolerance: the relative tolerance of the comparison.
        gpus: the number of GPUs of the simulated CUDA machine; None for one, and those that it names.
        autocast: as in `Plan`.
        scratch: whether to run in a copy of `root`.
        before: the commands to run first in this copy, since the command needs their files.
        to_stderr: whether to send the program's output to the standard error.
        stdin: the standard input of each run.
        python: the Python that runs the script or module, if it is not devicefix's.
        notebook: the notebook to run, or None.
        silent: whether to keep the program's output from the terminal; `Result.output` has its end.
        explain: whether to run a program that fails on the simulated CUDA machine, too, to find the cause;
            None for only where that is cheap.
        triton_interpret: whether Triton runs kernels by its interpreter, which needs no GPU.
        coverage: the coverage file to add a run to that passes, or None.
    """

    command: list[str]
    folder: Path
    root: Path
    sources: tuple[Path, ...]
    limits: Limits = field(default_factory=Limits)
    steps: int | None = None
    keep_going: bool = False
    copies: bool = True
    compare: bool = False
    accelerator: str = ""
    tolerance: float = 1e-5
    gpus: int | None = None
    autocast: Sequence[Use] | None = None
    scratch: bool = False
    before: tuple[Command, ...] = ()
    to_stderr: bool = False
    stdin: Input = field(default_factory=Input)
    python: str = ""
    notebook: Path | None = None
    silent: bool = False
    explain: bool | None = None
    triton_interpret: bool = False
    coverage: Path | None = None

    @property
    def machine(self) -> str:
        """The machine for the rewritten program, as in `Plan`."""
        return self.accelerator or "cpu"


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a run, and the events that it recorded.

    Attributes:
        ended: how it ended.
        events: its events.
        output: the last lines of the output, if it is not shown.
    """

    ended: Ended
    events: list[dict[str, Any]]
    output: tuple[str, ...] = ()


def run_program(
    task: Task, program: Program, folder: Path, tick: Callable[[float], None], machine: str = "cpu"
) -> Result:
    """Run a task's program once.

    Args:
        task: what to run.
        program: the modules to run it with.
        folder: the folder for the run's own files, which is created.
        tick: called regularly with the seconds so far.
        machine: as in `Plan`.

    Raises:
        OSError: the command cannot be started, or the folder cannot be copied.
    """
    folder.mkdir(parents=True)
    command = _command(task, folder)
    if not task.scratch:
        return _run(command, _plan(task, program, folder, machine), task.limits, tick)
    root = Path(os.path.realpath(task.root))
    with temporary_folder(place(root)) as parent:
        scratch = Scratch(root, parent)
        copied = scratch.program(program)
        for number, earlier in enumerate(task.before):  # for the files that it writes
            own = folder / f"before-{number}"
            own.mkdir()
            values = {"steps": task.steps, "seed": 0 if task.compare else None}
            silent = replace(scratch.command(earlier), output=own / "output.txt")
            run_command(silent, copied.plan(own, machine, **values), task.limits, tick)
        plan = scratch.plan(_plan(task, copied, folder, machine))
        result = _run(scratch.command(command), plan, task.limits, tick)
    events, output = scratch.restored(result.events), scratch.restored([*result.output])
    return Result(result.ended, events, tuple(output))


def _run(command: Command, plan: Plan, limits: Limits, tick: Callable[[float], None]) -> Result:
    ended = run_command(command, plan, limits, tick)
    return Result(ended, list(read(plan.events)), output=_last_lines(command.output))


def _last_lines(file: Path | None) -> tuple[str, ...]:
    """Return the last lines of a program's output."""
    if file is None:
        return ()
    with file.open("rb") as output:
        output.seek(max(0, file.stat().st_size - _TAIL))
        text = output.read().decode(errors="replace")
    return tuple(line.rstrip() for line in text.splitlines() if line.strip())[-LINES:]


def _command(task: Task, folder: Path) -> Command:
    environment = {"PYTHONHASHSEED": "0"} if task.compare else {}
    if task.gpus:
        environment["DEVICEFIX_GPUS"] = str(task.gpus)
    if task.triton_interpret:
        environment["TRITON_INTERPRET"] = "1"
    output = folder / "output.txt" if task.silent else None
    return Command(task.command, task.folder, environment, task.to_stderr, task.stdin, output)


def _plan(task: Task, program: Program, folder: Path, machine: str) -> Plan:
    return program.plan(
        folder,
        machine,
        steps=task.steps,
        keep_going=task.keep_going,
        copies=task.copies and machine == "cpu",
        observe=task.compare,
        autocast=task.autocast,
        seed=0 if task.compare else None,
    )


class Runs:
    """The runs of a program and of its original, each with a folder for its own files.

    Args:
        task: what to run.
        program: the rewritten program.
        folder: the folder for the runs' own files.
        tick: called regularly with the name of the run and its seconds so far.

    Attributes:
        task: what to run.
        rewritten: the rewritten program.
        original: the program as it is.
        seconds: the time that all runs took together.
    """

    def __init__(self, task: Task, program: Program, folder: Path, tick: Tick) -> None:
        self.task = task
        self.rewritten = program
        self.original = program.original
        self.seconds = 0.0
        self._folder = folder
        self._tick = tick

    def run(self, program: Program, name: str, machine: str, **options: Any) -> Result:
        """Run one of the two programs.

        Args:
            program: the program.
            name: a name for the run.
            machine: as in `Plan`.
            **options: the fields of the task that are different.
        """
        what = "the original" if program is self.original else "the rewritten program"
        tick = partial(self._tick, f"{what} on {_MACHINES[machine]}")
        result = run_program(replace(self.task, **options), program, self._folder / name, tick, machine)
        self.seconds += result.ended.seconds
        return result
