"""One verification: its runs, and the verdict on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from devicefix.config.settings import Settings
from devicefix.files import discover as files
from devicefix.verify import explain, notebook, runs
from devicefix.verify.against_cuda import Comparison, CudaComparison
from devicefix.verify.explain import Cause
from devicefix.verify.program import Rewritten, prepare
from devicefix.verify.runs import Task, Tick
from devicefix.verify.scratch import temporary_folder
from devicefix.verify.verdict import Run, Verdict, judge


@dataclass(slots=True)
class Report:
    """The result of a verification.

    Attributes:
        verdict: the verdict.
        reason: the reason in one line; empty for a pass.
        run: the run of the rewritten program on the CPU.
        causes: the findings at the lines where the run failed.
        advice: advice on a failure that no finding explains.
        comparison: the result of `--compare`.
        errors: the files that could not be rewritten, and why.
        copying: the seconds that scratch copies took, which are not part of those of the runs.
        python: the Python that ran the program, if it is not devicefix's.
        not_imported: the number of modules that were not rewritten, since the program has not imported them.
    """

    verdict: Verdict
    reason: str
    run: Run
    causes: list[Cause] = field(default_factory=list)
    advice: str = ""
    comparison: Comparison | None = None
    errors: list[str] = field(default_factory=list)
    copying: float = 0.0
    python: str = ""
    not_imported: int = 0


def root_of(script: Path | None) -> Path:
    """Return the folder that holds a program's modules.

    This is its git work tree, or else the current folder, or else the folder of the script.

    Args:
        script: the script, or None for a command or a module.
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
    rewritten: Iterable[Rewritten] | None = None,
) -> Report:
    """Run a program, rewritten in memory, and give a verdict.

    Args:
        task: what to run, and how.
        settings: the settings to rewrite with.
        tick: called regularly with the name of the run and its seconds so far.
        rewritten: the rewritten modules; None to rewrite the task's sources.

    Raises:
        OSError: the command cannot be started, or the folder cannot be copied.
    """
    with temporary_folder() as folder:
        program = prepare(task.sources, settings, folder, rewritten)
        if task.notebook is not None:
            notebook.add(task.notebook, program, settings, folder)
        result = runs.run_program(task, program, folder / "cpu", partial(tick, "the rewritten program"))
        run = judge(result.ended, result.events, program)
        run.ran, run.not_run = (
            [notebook.in_cells(place, program) for place in places] for places in (run.ran, run.not_run)
        )
        report = Report(run.verdict, run.reason, run, errors=program.errors)
        report.copying, report.python = result.copying, task.python
        if run.verdict is Verdict.FAIL:
            report.causes = explain.causes(run, settings)
            report.advice = explain.advice(run) if not report.causes else ""
        elif task.compare and run.verdict is not Verdict.TROUBLE:
            runs_on_cuda = CudaComparison(task, program, folder, tick)
            report.comparison = runs_on_cuda.against(result)
            report.copying += runs_on_cuda.copying
            _conclude(report, report.comparison)
        report.not_imported = len(program.waiting)
        return report


def _conclude(report: Report, comparison: Comparison) -> None:
    if comparison.failure:
        report.verdict = Verdict.TROUBLE
        machine = "the simulated CUDA machine" if comparison.machine == "simulated" else "CUDA"
        report.reason = f"the original fails on {machine}: {comparison.failure}"
    elif comparison.on_cuda or comparison.on_cpu:
        report.verdict = Verdict.FAIL
        where = "on CUDA" if comparison.on_cuda else "when it runs on the CPU"
        report.reason = f"the rewritten program differs from the original {where}"
    elif comparison.observations and comparison.compared == 0:
        report.verdict = Verdict.TROUBLE
        report.reason = "the run on the CPU reads none of the values that the original reads on CUDA"
