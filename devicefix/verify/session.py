"""One verification: the runs that it takes, and what comes of them together."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from devicefix.config.settings import Settings
from devicefix.files import discover as files
from devicefix.verify import explain, program, runs
from devicefix.verify.against_cuda import Comparing, Comparison
from devicefix.verify.explain import Cause
from devicefix.verify.program import New
from devicefix.verify.runs import Task, Tick
from devicefix.verify.verdict import Run, Verdict, judge


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
        result = runs.run(task, made, folder / "cpu", tick, "the rewritten program")
        run = judge(result.ended, result.events, made)
        report = Report(run.verdict, run.reason, run, errors=made.errors)
        if run.verdict is Verdict.FAIL:
            report.causes = explain.causes(run, settings)
            report.advice = explain.advice(run) if not report.causes else ""
        elif task.compare and run.verdict is not Verdict.TROUBLE:
            report.comparison = Comparing(task, made, folder, tick).against(result)
            _conclude(report, report.comparison)
        return report


def _conclude(report: Report, comparison: Comparison) -> None:
    if comparison.failure:
        report.verdict = Verdict.TROUBLE
        report.reason = f"the original fails on the {comparison.machine} CUDA machine: {comparison.failure}"
    elif comparison.on_cuda or comparison.on_cpu:
        report.verdict = Verdict.FAIL
        where = "on CUDA" if comparison.on_cuda else "on the CPU"
        report.reason = f"the rewritten program differs {where}"
