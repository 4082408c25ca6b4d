"""One run of a program: in the folder or a copy of it, on one kind of machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devicefix.verify import launch, program
from devicefix.verify.launch import Ended, Limits
from devicefix.verify.program import Program
from devicefix.verify.runtime.events import read
from devicefix.verify.runtime.plan import Plan

Tick = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be verified, and how.

    Attributes:
        command: the words of the command.
        folder: where it runs.
        root: the folder that a scratch copy is made of.
        sources: the files and folders that are rewritten.
        limits: of each run.
        steps: optimizer steps after which to stop, None for no limit.
        keep_going: whether to answer requests for CUDA with the CPU.
        copies: whether to watch memory that only CUDA copies.
        compare: whether to compare with the original on CUDA.
        tolerance: how far numbers may be apart, relative to their size.
        gpus: how many the simulated machine has; None for one, and DataParallel makes do with it.
        scratch: whether to run in a copy.
        to_stderr: whether the program's output goes to the standard error.
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
    tolerance: float = 1e-5
    gpus: int | None = None
    scratch: bool = False
    to_stderr: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """How a run has ended, and what has happened in it."""

    ended: Ended
    events: list[dict[str, Any]]


def run(task: Task, made: Program, folder: Path, tick: Tick, what: str, machine: str = "cpu") -> Result:
    """Run a task's program once.

    Args:
        task: what to run.
        made: its modules.
        folder: where the run's own files go; made here.
        tick: called now and then with `what` and the seconds that the run takes so far.
        what: the run's name.
        machine: as in a plan.

    Raises:
        OSError: the command cannot be started, or the folder not be copied.
    """
    folder.mkdir()
    home, command, here = Path(os.path.realpath(task.root)), task.command, task.folder
    copy = program.copy(home, folder) if task.scratch else home
    if task.scratch:
        made = program.moved(made, home, copy)
        stays = here.resolve().is_relative_to(home)  # then words that are relative paths stay right
        command = [
            word if stays and not os.path.isabs(word) else program.there(word, home, copy) for word in command
        ]
        here = Path(program.there(str(here.resolve()), home, copy))
    plan = Plan(
        folder=str(folder),
        roots=made.roots,
        machine=machine,
        rewritten=made.rewritten,
        fixes=made.fixes,
        steps=task.steps,
        keep_going=task.keep_going,
        copies=task.copies and machine == "cpu",
        observe=task.compare,
        seed=0 if task.compare else None,
    )
    environment = {"PYTHONHASHSEED": "0"} if task.compare else {}
    if task.gpus:
        environment["DEVICEFIX_GPUS"] = str(task.gpus)
    ended = launch.run(
        command,
        plan,
        task.limits,
        here,
        environment=environment,
        to_stderr=task.to_stderr,
        tick=lambda seconds: tick(what, seconds),
    )
    return Result(ended, [program.home(event, home, copy) for event in read(plan.events)])
