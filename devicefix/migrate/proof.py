"""Rewrite a program, run it, and rewrite it again with what the runs have shown."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import NamedTuple

from devicefix.config.evidence import NO_EVIDENCE, Evidence, Proven
from devicefix.config.resolver import Resolver
from devicefix.files.kinds import NOTEBOOK
from devicefix.migrate.commands import shown
from devicefix.migrate.evidence import Unsafe, ran, suggested, unsafe_fixes
from devicefix.model import Finding, Outcome
from devicefix.runner.run import check_files, checker
from devicefix.verify import session
from devicefix.verify.commands import Command
from devicefix.verify.program import Rewritten
from devicefix.verify.runs import Task, Tick
from devicefix.verify.session import Report
from devicefix.verify.verdict import Verdict

Fixes = frozenset[tuple[str, Proven]]

ROUNDS = 12  # rewrites that follow the evidence of one command


@dataclass(frozen=True, slots=True)
class Attempt:
    """A rewrite, and the runs with it.

    Attributes:
        evidence: what it is based on, besides the code.
        outcomes: the rewritten files.
        reports: the run of each command.
        unproven: why the fixes for what a run has shown are not made; empty if they are.
        unjustified: why the runs do not justify an unsafe fix, for those that were tried.
    """

    evidence: Evidence
    outcomes: list[Outcome]
    reports: list[Report] = field(default_factory=list)
    unproven: str = ""
    unjustified: Mapping[tuple[str, Proven], str] = field(default_factory=dict)

    def without(self, fixes: Fixes, why: str) -> Attempt:
        """Return the attempt, with the reason why the runs do not justify some fixes."""
        return replace(self, unjustified={**self.unjustified, **dict.fromkeys(fixes, why)})


def passes(report: Report) -> bool:
    """Return whether a program passes on the CPU, or passed until the steps that were asked for.

    If the original fails on the simulated CUDA machine, there is nothing to compare with.
    """
    alone = report.verdict is Verdict.TROUBLE and uncompared(report)
    return _ended_well(report.run.verdict if alone else report.verdict, report.run.limit)


def uncompared(report: Report) -> str:
    """Return why the original fails on the simulated CUDA machine; empty if it does not."""
    return report.comparison.failure if report.comparison else ""


def _ended_well(verdict: Verdict, limit: str | None) -> bool:
    return verdict is Verdict.PASS or (verdict is Verdict.STOPPED and limit == "steps")


def differs(report: Report) -> bool:
    """Return whether a program runs to its end on the CPU, but computes other numbers than on CUDA."""
    comparison = report.comparison
    unlike = comparison is not None and bool(comparison.on_cuda or comparison.on_cpu)
    return unlike and _ended_well(report.run.verdict, report.run.limit)


def equal(report: Report) -> bool:
    """Return whether a run passes, with the numbers of the original on CUDA."""
    comparison = report.comparison
    return passes(report) and comparison is not None and not comparison.failure and bool(comparison.compared)


def _way(report: Report) -> tuple[object, ...]:
    """Return the way in which a run ends, to compare it with that of another run."""
    comparison, failure = report.comparison, report.run.failure
    unlike = (comparison.failure, comparison.on_cuda, comparison.on_cpu) if comparison else ()
    return report.verdict, report.reason, failure and (failure.error, failure.frames), unlike


def _unequal(report: Report) -> str:
    """Return why a run does not prove the fixes that it ran with."""
    if not passes(report):
        return report.reason
    if why := uncompared(report):
        return f"the original fails on the simulated CUDA machine: {why}"
    return "there are no numbers to compare"


class Display(NamedTuple):
    """The way to show what happens.

    Attributes:
        tick: called regularly with the name of a run and its seconds so far.
        say: called with each step.
    """

    tick: Tick
    say: Callable[[str], None]


class Prover:
    """Finds the rewrite with which a program's commands pass.

    Args:
        files: the files of the program.
        resolver: the settings of the rewrite.
        tasks: the commands. One that fails alone runs after the earlier ones, which may write its files.
        display: shows the steps.
    """

    def __init__(
        self, files: Sequence[Path], resolver: Resolver, tasks: Sequence[Task], display: Display
    ) -> None:
        self._files = list(files)
        self._resolver = resolver.changed(fix=True)
        self._tasks = list(tasks)
        self._tick, self._say = display
        self._failed: dict[tuple[str, Proven], str] = {}  # how a run fails with unsafe fixes for its error

    def prove(self) -> Attempt:
        """Return the rewrite to keep: with the safe fixes, and with what the runs prove besides."""
        evidence = NO_EVIDENCE
        found: dict[int, Evidence] = {}
        for number in range(len(self._tasks)):
            more = self._followed(number, evidence)
            if more != evidence:
                found[number] = more - evidence
            evidence = more
        best = self._tried(evidence)
        if found and (why := self._why_unequal(best)):
            self._say(f"not all runs prove these fixes ({why}); running without them")
            best = self._proven(best, self._tried(NO_EVIDENCE), found)
        return self._with_unsafe(best)

    def _proven(self, every: Attempt, best: Attempt, found: Mapping[int, Evidence]) -> Attempt:
        """Return the rewrite with the evidence that the runs prove: with all of it, or command by command.

        Args:
            every: the rewrite with all evidence.
            best: the rewrite without it.
            found: the evidence of each command.
        """
        why = self._why_worse(every, best, found)
        if not why:
            return every
        if len(found) == 1:
            return replace(best, unproven=best.unproven or why)
        for number, more in found.items():
            one = replace(self._tried(best.evidence | more), unproven=best.unproven)
            best = self._proven(one, best, {number: more})
        return best

    def _followed(self, number: int, before: Evidence) -> Evidence:
        """Return the evidence with which a command passes, or that from before if it never does."""
        evidence = before
        for _ in range(ROUNDS):
            tried = Attempt(evidence, self._rewritten(evidence))
            report = self._run(number, tried, compare=False)
            if passes(report):
                return evidence
            more = evidence | suggested(report, tried.outcomes, self._left(tried.outcomes))
            if more == evidence:
                return self._rescued(number, tried) or before
            self._say(f"{report.reason or report.verdict.value}: trying fixes for this problem")
            evidence = more
        return before

    def _rescued(self, number: int, failing: Attempt) -> Evidence | None:
        """Return the evidence with the unsafe fixes with which a failing command passes, or None."""
        candidates = self._candidates(failing)
        if not candidates:
            return None
        self._trying(candidates)
        evidence = failing.evidence | Evidence(proven=candidates)
        every = Attempt(evidence, self._rewritten(evidence))
        report = self._run(number, every, compare=False)
        executed = ran(report, unsafe_fixes(every.outcomes, made=True)) & candidates
        if not passes(report):
            self._failed |= dict.fromkeys(candidates, f"with them, {self._named(number, report.reason)}")
        proven = Evidence(proven=frozenset(executed))
        return failing.evidence | proven if executed and passes(report) else None

    def _why_unequal(self, attempt: Attempt) -> str:
        """Return why the runs do not prove a rewrite; empty if they do."""
        runs = enumerate(attempt.reports)
        return next((self._named(each, _unequal(run)) for each, run in runs if not equal(run)), "")

    def _why_worse(self, now: Attempt, before: Attempt, by: Container[int] = ()) -> str:
        """Return why the runs do not prove what a rewrite has more than another one; empty if they do.

        A run that ends in the same way with both proves nothing.

        Args:
            now: the rewrite.
            before: the other one.
            by: the commands that have to prove it.
        """
        for number, (run, other) in enumerate(zip(now.reports, before.reports, strict=True)):
            if not equal(run) and (number in by or _way(run) != _way(other)):
                return self._named(number, _unequal(run))
        return ""

    def _named(self, number: int, why: str) -> str:
        """Return the reason of one of the commands, with its name if there are several."""
        return f"{shown(self._tasks[number])}: {why}" if len(self._tasks) > 1 else why

    def _with_unsafe(self, best: Attempt) -> Attempt:
        """Return the rewrite with the unsafe fixes that the runs execute and prove."""
        candidates = self._candidates(best) if best.reports else None
        if not candidates:
            return best
        if any(map(equal, best.reports)):
            return self._extended(best, candidates)
        best = best.without(candidates, f"without them, {self._why_unequal(best)}")
        return replace(best, unjustified={**best.unjustified, **self._failed})

    def _extended(self, best: Attempt, candidates: Fixes) -> Attempt:
        """Return a rewrite with more unsafe fixes: with all that run, or if these fail together, by rule."""
        self._trying(candidates)
        every = self._tried(best.evidence | Evidence(proven=candidates))
        why = self._why_worse(every, best)
        codes = sorted({fix.code for _, fix in candidates})
        if why and len(codes) > 1:
            for code in codes:
                best = self._extended(best, frozenset(each for each in candidates if each[1].code == code))
            return best
        if why:
            return best.without(candidates, f"with them, {why}")
        made = unsafe_fixes(every.outcomes, made=True)
        executed = [candidates & ran(report, made) for report in every.reports]
        proven = frozenset().union(*compress(executed, map(equal, every.reports)))
        best = best.without(candidates, "their code did not run")
        for number, report in enumerate(every.reports):
            why_not = f"with them, {self._named(number, _unequal(report))}"
            best = best.without(executed[number] - proven, why_not)
        if proven and proven != candidates:
            every = self._tried(best.evidence | Evidence(proven=proven))
            why = self._why_worse(every, best)
        if not proven or why:
            return best.without(proven, f"with them, {why}")
        return replace(every, unjustified=best.unjustified, unproven=best.unproven)

    def _trying(self, fixes: Fixes) -> None:
        self._say(f"trying {len(fixes)} unsafe fix{'es' if len(fixes) > 1 else ''}")

    def _candidates(self, attempt: Attempt) -> Fixes:
        """Return the unsafe fixes to try besides those that are made."""
        return frozenset(fix.proven for fix in self._left(attempt.outcomes)) - attempt.evidence.proven

    def _tried(self, evidence: Evidence) -> Attempt:
        attempt = Attempt(evidence, self._rewritten(evidence))
        reports = [self._run(number, attempt, compare=True) for number in range(len(self._tasks))]
        return replace(attempt, reports=reports)

    def _left(self, outcomes: list[Outcome]) -> list[Unsafe]:
        """Return the unsafe fixes that are not made, and in notebooks all unsafe fixes."""
        left = [outcome for outcome in outcomes if not outcome.path.endswith(NOTEBOOK)]
        notebooks = [Path(outcome.path) for outcome in outcomes if outcome.path.endswith(NOTEBOOK)]
        # What remains in a notebook has lines of the new cells, which evidence does not know.
        left += check_files(notebooks, self._resolver.changed(fix=False)) if notebooks else []
        return unsafe_fixes(left, made=False)

    @cached_property
    def safe(self) -> list[Outcome]:
        """The files, rewritten with the safe fixes only."""
        return check_files(self._files, self._resolver)

    def unfixed(self, path: str, evidence: Evidence) -> list[Finding]:
        """Return the findings of a file as it is, without any fix."""
        return self._check(path, self._resolver.changed(fix=False, evidence=evidence)).result.findings

    @cached_property
    def _check(self) -> Callable[[str, Resolver], Outcome]:
        return checker(self._files, self._resolver)

    def _rewritten(self, evidence: Evidence) -> list[Outcome]:
        """Return the files, rewritten with evidence, which changes only the files that it is on."""
        resolver, files = self._resolver.changed(evidence=evidence), evidence.files
        return [self._check(each.path, resolver) if each.path in files else each for each in self.safe]

    def _run(self, number: int, attempt: Attempt, compare: bool) -> Report:
        """Run a command; if it fails, run it again after the earlier ones."""
        task = self._tasks[number]
        before = (each for each in self._tasks[:number] if each.notebook is None)
        earlier = tuple(Command(each.command, each.folder) for each in before)
        if task.before or not earlier:
            return self._verified(task, attempt, compare)
        report = self._verified(replace(task, explain=False), attempt, compare)
        if passes(report):
            return report
        self._say("it fails alone, so it runs again after the earlier commands")
        after = replace(task, before=earlier)
        again = self._verified(after, attempt, compare)
        if again.reason != report.reason:
            self._tasks[number] = after
        return again

    def _verified(self, task: Task, attempt: Attempt, compare: bool) -> Report:
        where = "the CPU and the simulated CUDA machine" if compare else "the CPU"
        self._say(f"running {shown(task)} on {where}")
        resolver = self._resolver.changed(evidence=attempt.evidence)  # a notebook is rewritten for the run
        rewritten = list(filter(None, map(Rewritten.of, attempt.outcomes)))
        report = session.verify(replace(task, compare=compare), resolver, self._tick, rewritten)
        reason = f": {report.reason}" if report.reason else ""
        self._say(f"{report.verdict.value} in {report.seconds:.1f} s{reason}")
        return report
