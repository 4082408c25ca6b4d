"""One verification: the runs that it takes, and what comes of them together."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devicefix import files
from devicefix.config import Settings
from devicefix.runtime.events import read
from devicefix.runtime.plan import Plan
from devicefix.verify import explain, launch, program
from devicefix.verify.explain import Cause
from devicefix.verify.launch import Ended, Limits
from devicefix.verify.program import New, Program
from devicefix.verify.verdict import Run, Verdict, judge

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


@dataclass(slots=True)
class Comparison:
    """The three runs of --compare.

    Attributes:
        machine: "simulated" or "cuda".
        observations: how many the original's run made.
        seconds: of the original and of the rewritten program on that machine.
        on_cuda: differences between the original and the rewritten program there.
        on_cpu: differences between there and the CPU.
        notes: what else differs, and may.
    """

    machine: str
    observations: int = 0
    seconds: tuple[float, float] = (0.0, 0.0)
    on_cuda: list[str] = field(default_factory=list)
    on_cpu: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """All that a verification has found.

    Attributes:
        verdict: the verdict.
        reason: why, in one line; empty for a pass.
        run: the rewritten program's run on the CPU.
        causes: the findings at the lines where it failed.
        advice: what to do where no finding explains it.
        comparison: the result of --compare.
        errors: what could not be rewritten, and why.
    """

    verdict: Verdict
    reason: str
    run: Run
    causes: list[Cause] = field(default_factory=list)
    advice: str = ""
    comparison: Comparison | None = None
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Result:
    ended: Ended
    events: list[dict[str, Any]]


def root_of(script: Path | None) -> Path:
    """The folder that holds a program's modules: its work tree, or the current folder, or the script's.

    Args:
        script: the file that is run, None for a command or a module.
    """
    here = Path.cwd()
    if script is None:
        return files.work_tree(here) or here
    folder = script.resolve().parent
    return files.work_tree(folder) or (here if folder.is_relative_to(here) else folder)


def verify(
    task: Task,
    settings: Settings,
    tick: Tick,
    rewritten: Iterable[New] | None = None,
) -> Report:
    """Run a program, rewritten in memory, and judge it.

    Args:
        task: what to run, and how.
        settings: which rules are on, and which fixes are wanted.
        tick: called now and then with the name of the run and its seconds.
        rewritten: the modules that change, with their new content and the lines that were fixed; None to
            rewrite the task's sources.

    Raises:
        OSError: the command cannot be started, or the folder not be copied.
    """
    with tempfile.TemporaryDirectory(prefix="devicefix-") as name:
        folder = Path(os.path.realpath(name))
        made = program.prepare(task.sources, settings, folder, rewritten)
        result = _run(task, made, folder / "cpu", tick, "the rewritten program")
        run = judge(result.ended, result.events, made)
        report = Report(run.verdict, run.reason, run, errors=made.errors)
        if run.verdict is Verdict.FAIL:
            report.causes = explain.causes(run, settings)
            report.advice = explain.advice(run) if not report.causes else ""
        elif task.compare and run.verdict is not Verdict.TROUBLE:
            _compare(task, made, folder, tick, result, report)
        return report


def _compare(task: Task, made: Program, folder: Path, tick: Tick, on_cpu: _Result, report: Report) -> None:
    from devicefix.verify import compare

    machine = "cuda" if _has_cuda(task.command[0]) else "simulated"
    original = Program(made.roots)
    first = _run(task, original, folder / "original", tick, "the original", machine)
    second = _run(task, made, folder / "rewritten", tick, "the rewritten program on CUDA", machine)
    seconds = first.ended.seconds, second.ended.seconds
    report.comparison = comparison = Comparison(machine, compare.observations(first.events), seconds)
    before, after = judge(first.ended, first.events, original), judge(second.ended, second.events, made)
    if before.failure or first.ended.status:
        report.verdict = Verdict.TROUBLE
        report.reason = f"the original fails on the {machine} CUDA machine: {before.reason}"
        return
    if after.failure or second.ended.status:
        comparison.on_cuda.append(f"the rewritten program fails: {after.reason}{_at(after)}")
    else:
        _differences(comparison, first, second, on_cpu, task, made)
    if comparison.on_cuda or comparison.on_cpu:
        report.verdict = Verdict.FAIL
        where = "on CUDA" if comparison.on_cuda else "on the CPU"
        report.reason = f"the rewritten program differs {where}"


def _differences(
    comparison: Comparison, first: _Result, second: _Result, on_cpu: _Result, task: Task, made: Program
) -> None:
    from devicefix.verify import compare

    for other, devices, found in (
        (second, True, comparison.on_cuda),
        (on_cpu, False, comparison.on_cpu),
    ):
        for difference in compare.differences(
            first.events, other.events, devices=devices, tolerance=task.tolerance
        ):
            (comparison.notes if difference.expected else found).append(compare.describe(difference))


def _at(run: Run) -> str:
    frames = run.failure.frames if run.failure else ()
    return f" ({os.path.relpath(frames[-1].file)}:{frames[-1].line})" if frames else ""


def _run(task: Task, made: Program, folder: Path, tick: Tick, what: str, machine: str = "cpu") -> _Result:
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
    return _Result(ended, [program.home(event, home, copy) for event in read(plan.events)])


def _has_cuda(python: str) -> bool:
    """Whether the machine has a GPU that torch can use."""
    python = python if "python" in os.path.basename(python) else sys.executable
    asked = "import torch; raise SystemExit(not torch.cuda.is_available())"
    return subprocess.run([python, "-c", asked], capture_output=True).returncode == 0
