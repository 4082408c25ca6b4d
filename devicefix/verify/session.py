"""One verification: its runs, and the verdict on them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from devicefix.config.resolver import Resolver
from devicefix.config.settings import Settings
from devicefix.files.signals import temporary_folder
from devicefix.runner import coverage
from devicefix.verify import notebook, runs
from devicefix.verify.against_cuda import Comparison, CudaComparison
from devicefix.verify.case import Case
from devicefix.verify.cause import Explanation
from devicefix.verify.coverage import Total, add
from devicefix.verify.explain import explain, explain_comparison
from devicefix.verify.program import Rewritten, prepare
from devicefix.verify.runs import Task, Tick
from devicefix.verify.trials import Trials
from devicefix.verify.verdict import Run, Verdict, judge


@dataclass(slots=True)
class Report:
    """The result of a verification.

    Attributes:
        verdict: the verdict.
        reason: the reason in one line; empty for a pass.
        run: the run of the rewritten program on the CPU.
        explanation: the cause of a verdict that is not a pass, the evidence, and what to do.
        comparison: the result of `--compare`.
        coverage: what the coverage file holds after the run; None without one, and if the run failed.
        errors: the files that could not be rewritten, and why.
        seconds: the duration of everything: all runs, and the copies that they run in.
        python: the Python that ran the program, if it is not devicefix's.
        output: the last lines of the program's output, if it was not shown.
    """

    verdict: Verdict
    reason: str
    run: Run
    explanation: Explanation | None = None
    comparison: Comparison | None = None
    coverage: Total | None = None
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    python: str = ""
    output: tuple[str, ...] = ()


def verify(
    task: Task, resolver: Resolver, tick: Tick, rewritten: Iterable[Rewritten] | None = None
) -> Report:
    """Run a program, rewritten in memory, and give a verdict.

    Args:
        task: what to run, and how.
        resolver: the settings to rewrite with.
        tick: called regularly with the name of the run and its seconds so far.
        rewritten: the rewritten modules; None to rewrite the task's sources.

    Raises:
        OSError: the command cannot be started, the folder not be copied, or the coverage file not be written.
        ConfigError: the coverage file exists and is no coverage file.
    """
    start = time.monotonic()
    if task.coverage is not None and task.coverage.exists():
        coverage.read(task.coverage)  # an error comes before the run
    with temporary_folder() as folder:
        program = prepare(task.sources, resolver, folder, rewritten)
        if task.notebook is not None:
            notebook.add(task.notebook, program, resolver, folder)
        watch = partial(tick, "the rewritten program")
        result = runs.run_program(task, program, folder / "first", watch, task.machine)
        run = judge(result.ended, result.events, program)
        run.ran = [notebook.in_cells(place, program) for place in run.ran]
        run.not_run = [notebook.in_cells(place, program) for place in run.not_run]
        report = Report(run.verdict, run.reason, run, errors=program.errors, python=task.python)
        report.output = result.output
        if run.verdict is not Verdict.PASS:
            trials = Trials(task, program, run, folder, tick)
            report.explanation = explain(Case(run, task, program, resolver, trials))
        if task.compare and run.verdict not in (Verdict.FAIL, Verdict.TROUBLE):
            runs_on_cuda = CudaComparison(task, program, folder, tick)
            report.comparison = runs_on_cuda.against(result)
            _conclude(report, report.comparison, resolver.root)
        if task.coverage is not None:
            if report.verdict in (Verdict.PASS, Verdict.STOPPED):
                report.coverage = add(task.coverage, program, run)
            else:
                run.warnings.append(f"{task.coverage}: the run was not added, because it did not pass")
        report.seconds = time.monotonic() - start
        return report


def _conclude(report: Report, comparison: Comparison, settings: Settings) -> None:
    if comparison.failure:
        report.verdict = Verdict.TROUBLE
        machine = "the simulated CUDA machine" if comparison.machine == "simulated" else "CUDA"
        report.reason = f"the original fails on {machine}: {comparison.failure}"
    elif comparison.on_cuda or comparison.on_cpu:
        report.verdict = Verdict.FAIL
        where = "on CUDA" if comparison.on_cuda else "when it runs on the CPU"
        where = f"when it runs on {comparison.accelerator.upper()}" if comparison.accelerator else where
        report.reason = f"the rewritten program differs from the original {where}"
    report.explanation = explain_comparison(comparison, settings) or report.explanation
