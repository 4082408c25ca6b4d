"""Derive evidence from the runs of a program: what is missing, and which unsafe fixes are proven."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from devicefix.config.evidence import Evidence, Proven, Seen
from devicefix.devices.places import TOO_EARLY
from devicefix.migrate.cells import line_of, lines_of
from devicefix.model import Finding, Outcome, Safety
from devicefix.verify.session import Report
from devicefix.verify.verdict import Location

_METHOD = re.compile(r"\.?(\w+)")
_COPIES = ("tensor", "numpy view", "numpy buffer")  # which `.clone()` or `.copy()` separates
_NO_ATTRIBUTE = re.compile(r"AttributeError: .* has no attribute '(module|_orig_mod)'")
_NAME = re.compile(r"(?:NameError|UnboundLocalError): .*'(\w+)'")


@dataclass(frozen=True, slots=True)
class Unsafe:
    """An unsafe fix, made or not.

    Attributes:
        path: the file, by its path as it is checked.
        line: the line of the finding in the user's file; in a notebook, that of the module of all cells.
        end_line: its last line there.
        finding: the finding.
    """

    path: str
    line: int
    end_line: int
    finding: Finding

    @property
    def proven(self) -> tuple[str, Proven]:
        """The entry of this fix in the evidence."""
        return self.path, Proven(self.line, self.finding.code)


def unsafe_fixes(outcomes: Iterable[Outcome], made: bool) -> list[Unsafe]:
    """Return the unsafe fixes of Python files and notebooks.

    Args:
        outcomes: the rewritten files.
        made: whether to return those that are made, instead of those that are not and that a run can prove.
    """
    found = []
    for outcome in outcomes:
        result = outcome.result
        for finding in result.fixed if made else result.remaining:
            if finding.safety is Safety.UNSAFE and (made or not finding.is_unsafe_for(TOO_EARLY)):
                lines = lines_of(outcome.path, finding)
                if not made and result.origins:
                    lines = tuple(result.origins[line - 1] + 1 for line in lines)  # type: ignore[assignment]
                found.append(Unsafe(outcome.path, *lines, finding))
    return found


def suggested(report: Report, outcomes: list[Outcome], left: list[Unsafe]) -> Evidence:
    """Return the evidence of a run that did not pass: what may make it pass.

    Args:
        report: the run.
        outcomes: the rewritten files that it ran.
        left: their unsafe fixes that are not made.
    """
    paths = {os.path.realpath(outcome.path): outcome.path for outcome in outcomes}
    places = {(paths.get(file), line) for file, line in map(line_of, _places(report))}
    blamed = [fix for fix in left if any((fix.path, line) in places for line in _lines(fix))]
    mended = {(fix.path, line) for fix in blamed for line in _lines(fix)}
    known = ((paths[file], each) for file, each in _seen(report) if file in paths)
    seen = frozenset((path, each) for path, each in known if (path, each.line) not in mended)
    failure = report.run.failure
    if failure and (missing := _NAME.match(failure.error)):  # the name that the program did not find
        files = {path for path, _ in places}
        blamed += [fix for fix in left if fix.path in files and f"`{missing[1]}`" in fix.finding.message]
    return Evidence(seen, frozenset(fix.proven for fix in blamed))


def ran(report: Report, fixes: Iterable[Unsafe]) -> set[tuple[str, Proven]]:
    """Return the unsafe fixes whose code ran entirely.

    Args:
        report: the run.
        fixes: the unsafe fixes in the files that it ran.
    """
    own = ((module.file, each) for module in report.run.modules for each in module.fixes)
    done = {(file, each.line, each.code) for file, each in own if each.is_seen}
    return {fix.proven for fix in fixes if (os.path.realpath(fix.path), fix.line, fix.finding.code) in done}


def _seen(report: Report) -> Iterator[tuple[str, Seen]]:
    for hazard in report.run.copies:
        method = _METHOD.match(hazard.move)
        if hazard.what in _COPIES and method:
            file, line = line_of(hazard.moved)
            yield file, Seen("copy", line, method[1])
    for request in report.run.requests:
        if request.library is None:
            file, line = line_of(request.place)
            yield file, Seen("request", line, "")
    failure = report.run.failure
    missing = _NO_ATTRIBUTE.match(failure.error) if failure else None
    if failure and failure.frames and missing and failure.library in ("", "torch"):
        file, line = line_of(failure.frames[-1])
        yield file, Seen("attribute", line, missing[1])


def _places(report: Report) -> Iterator[Location]:
    """Yield the lines that may be why a run did not pass."""
    if report.run.failure is not None:
        yield from report.run.failure.frames
    for request in report.run.requests:
        yield request.place
    for hazard in report.run.copies:
        yield hazard.moved
    if report.explanation is not None:
        for tie in report.explanation.findings:
            yield tie.place
            yield Location(tie.place.file, tie.finding.line)


def _lines(fix: Unsafe) -> range:
    return range(fix.line, fix.end_line + 1)
