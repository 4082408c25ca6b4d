"""One migration: look at a project, rewrite it, run its commands, and sum up."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from devicefix.config.evidence import Evidence, Proven
from devicefix.config.resolver import Resolver
from devicefix.devices.places import TOO_EARLY
from devicefix.engine.fix import at_origin
from devicefix.files.origin import Origin, origin_of
from devicefix.files.text import Source
from devicefix.files.write import Change
from devicefix.migrate.cells import line_of, lines_of
from devicefix.migrate.commands import tasks
from devicefix.migrate.environment import Variant, environment
from devicefix.migrate.evidence import Unsafe, ran, unsafe_fixes
from devicefix.migrate.look import Look, look
from devicefix.migrate.proof import Attempt, Display, Prover, differs, equal, passes
from devicefix.model import Finding, Outcome, Safety
from devicefix.report.wording import count
from devicefix.runner.find import find_files
from devicefix.verify.commands import Limits
from devicefix.verify.runs import Task
from devicefix.verify.session import Report

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Left:
    """A finding that is left for a person.

    Attributes:
        path: the file.
        finding: the finding, at its position in the old file.
        origin: whether the file is a test, or generated.
        blamed: whether a run stopped at this line.
        unjustified: why the runs do not justify its unsafe fix; empty if this was not tried.
    """

    path: str
    finding: Finding
    origin: Origin = Origin.CODE
    blamed: bool = False
    unjustified: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """An unsafe fix that the runs justify.

    Attributes:
        path: the file.
        finding: the finding, at its position in the old file.
        evidence: what the runs have shown.
    """

    path: str
    finding: Finding
    evidence: str


@dataclass(slots=True)
class Migration:
    """The result of a migration, of which nothing is written yet.

    Attributes:
        look: what the project is.
        commands: the commands that were run.
        outcomes: the rewritten files.
        failed: the files that could not be checked.
        safe: the rewritten files with the safe fixes only.
        reports: the run of each command.
        kept: the unsafe fixes that the runs justify.
        left: what is left for a person, the most urgent first.
        variants: the files to install from without CUDA.
        unproven: why the fixes for what a run has shown are not made; empty if they are.
    """

    look: Look
    commands: list[str]
    outcomes: list[Outcome]
    failed: list[Outcome]
    safe: list[Outcome]
    reports: list[Report] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    variants: list[Variant] = field(default_factory=list)
    unproven: str = ""

    @property
    def fixed(self) -> int:
        """The number of findings that are fixed."""
        return sum(len(outcome.result.fixed) for outcome in self.outcomes)

    @property
    def changed(self) -> list[Outcome]:
        """The files that change."""
        return _changed(self.outcomes)

    @property
    def new(self) -> list[Variant]:
        """The files that are new."""
        return [variant for variant in self.variants if not variant.exists]

    @property
    def changes(self) -> list[Change]:
        """The changes to write."""
        return _changes(self.outcomes) + [Change(variant.path, None, variant.content) for variant in self.new]

    @property
    def verdict(self) -> str:
        """The verdict in a few words, never better than what was run."""
        if not self.reports:
            return "not run"
        failing = [report for report in self.reports if not passes(report)]
        if stopped := [report for report in failing if not differs(report)]:
            return f"does not run: {stopped[0].reason or stopped[0].verdict.value}"
        if failing:
            return "runs, numbers differ"
        return "runs, numbers equal" if all(map(equal, self.reports)) else "runs"

    @property
    def runs(self) -> bool:
        """True if no command failed."""
        return all(map(passes, self.reports))


@dataclass(frozen=True, slots=True)
class Request:
    """A project to migrate, and its commands.

    Attributes:
        root: the folder of the project.
        commands: the commands that start the program.
        limits: the limits of each run.
        steps: the number of optimizer steps to stop after, or None.
        tolerance: the largest relative difference between two numbers.
        check: is called with the safe changes before the first command runs, to stop early.
    """

    root: Path
    commands: Sequence[str] = ()
    limits: Limits = Limits()  # noqa: RUF009 (frozen)
    steps: int | None = None
    tolerance: float = 1e-5
    check: Callable[[list[Change]], None] | None = None

    def tasks(self) -> list[Task]:
        """Return the commands as tasks for `verify`."""
        common = Task([], self.root, self.root, (), self.limits, self.steps, tolerance=self.tolerance)
        return tasks(self.commands, self.root, common)


def migrate(request: Request, resolver: Resolver, display: Display) -> Migration:
    """Rewrite a project, with what the runs of its commands prove.

    Args:
        request: the project and its commands.
        resolver: the settings.
        display: shows the steps.

    Raises:
        OSError: a command cannot be started, or the project's folder cannot be copied.
    """
    unread: list[OSError] = []
    files = find_files([request.root], resolver, unread.append)
    display.say(f"looking at {count(len(files), 'file')}")
    about = look(request.root, files)
    beside = environment(files)
    # The original of a new file stays as it is: it installs the same as before on a machine with CUDA.
    replaced = {variant.original for variant in beside if not variant.exists}
    files = [file for file in files if os.fspath(file) not in replaced]
    prover = Prover(files, resolver, request.tasks(), display)
    if request.check is not None:
        request.check(_changes(prover.safe))
    attempt = prover.prove()
    failed = [outcome for outcome in attempt.outcomes if outcome.error]
    done = Migration(
        look=about,
        commands=list(request.commands),
        outcomes=[outcome for outcome in attempt.outcomes if not outcome.error],
        failed=failed,
        safe=[outcome for outcome in prover.safe if not outcome.error],
        reports=attempt.reports,
        variants=beside,
        unproven=attempt.unproven,
    )
    done.kept = list(_kept(attempt, done.commands))
    done.left = sorted(_left(done, attempt, prover), key=_urgency)
    return done


def _changed(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.result.output is not None]


def _changes(outcomes: Iterable[Outcome]) -> list[Change]:
    return [Change(each.path, each.before, each.result.output or b"") for each in _changed(outcomes)]


def _kept(attempt: Attempt, commands: Sequence[str]) -> Iterable[Kept]:
    proving = [each for each in zip(commands, attempt.reports, strict=True) if equal(each[1])]
    for fix in unsafe_fixes(attempt.outcomes, made=True):
        if _is_justified(attempt.evidence, fix):
            runs = [each for each in proving if ran(each[1], [fix])] or proving
            shown = " and ".join(f"`{command}`" for command, _ in runs)
            compared = sum(report.comparison.compared or 0 for _, report in runs if report.comparison)
            numbers = f"{count(compared, 'value')} equal on the CPU and the simulated CUDA machine"
            yield Kept(fix.path, fix.finding, f"ran in {shown}; {numbers}")


def _is_justified(evidence: Evidence, fix: Unsafe) -> bool:
    lines = range(fix.line, fix.end_line + 1)
    seen = any(each.line in lines for each in evidence.seen_in(fix.path))
    return seen or evidence.proves(fix.path, fix.line, fix.finding.code)


def _left(done: Migration, attempt: Attempt, prover: Prover) -> Iterable[Left]:
    runs = [report.run for report in done.reports if not passes(report)]
    frames = (at for run in runs if run.failure for at in run.failure.frames)
    places = {*map(line_of, frames), *(line_of(each.place) for run in runs for each in run.requests)}
    for outcome in done.outcomes:
        real, result = os.path.realpath(outcome.path), outcome.result
        found = result.remaining
        if found and result.output is not None:
            found = _before(outcome, prover.unfixed(outcome.path, attempt.evidence))
        for finding in found:
            line, _ = lines_of(outcome.path, finding)
            name = os.path.relpath(real, os.path.realpath(done.look.root))
            origin, blamed = origin_of(name, outcome.before), (real, line) in places
            why = attempt.unjustified.get((outcome.path, Proven(line, finding.code)), "")
            why = "a run without a GPU can't prove them" if finding.is_unsafe_for(TOO_EARLY) else why
            yield Left(outcome.path, finding, origin, blamed, why)


def _before(outcome: Outcome, unfixed: Iterable[Finding]) -> list[Finding]:
    """Return the findings that remain in a rewritten file as they are in the old one.

    Args:
        outcome: the rewritten file.
        unfixed: the findings of the old file.
    """
    result = outcome.result
    fixed = set(map(_position, result.fixed))
    open_ = [finding for finding in unfixed if _position(finding) not in fixed]
    remaining = result.remaining
    if result.origins:
        remaining = at_origin(remaining, Source(outcome.before), result.origins)
    found = []
    for finding in remaining:
        like = [each for each in open_ if _words(each) == _words(finding)]
        if result.origins:
            like = [each for each in like if each.line == finding.line]
        # the rewritten lines of a notebook are not mapped to the old ones
        best = min(like, key=lambda each: abs(each.line - finding.line), default=None)
        if best is not None:
            open_.remove(best)
        found.append(best or finding)
    return found


def _position(finding: Finding) -> tuple[int | None, int, int, str]:
    return finding.cell, finding.line, finding.column, finding.code


def _words(finding: Finding) -> tuple[int | None, str, str]:
    """Return what a finding has in common with the same one at other lines."""
    return finding.cell, finding.code, _NUMBER.sub("", finding.message)


def _urgency(left: Left) -> tuple[bool, int, bool, str, int]:
    """Return the key that puts first what stops the program, and last tests and generated files."""
    unsafe = left.finding.safety is Safety.UNSAFE
    return not left.blamed, list(Origin).index(left.origin), unsafe, left.path, left.finding.line


def coverage(reports: Iterable[Report]) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """Return the lines with fixes that ran in any of the runs, and all others."""
    ran: set[tuple[str, int]] = set()
    every: set[tuple[str, int]] = set()
    for report in reports:
        for module in report.run.modules:
            ran |= {(module.file, line) for line in module.ran}
            every |= {(module.file, line) for line in (*module.ran, *module.not_run)}
    return ran, every - ran
