"""Explanations of a failed run: the findings at the lines where it failed, and advice."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from devicefix.config.settings import Settings
from devicefix.model import Finding
from devicefix.runner.run import check_files
from devicefix.verify.verdict import Location, Run

_ADVICE = {
    "FileNotFoundError": "a file is missing; check that the original program finds the files it needs",
    "ModuleNotFoundError": "a package is missing; install it, or select another environment with `--python`",
    "EOFError": "the program reads the standard input; provide it, as in `devicefix verify SCRIPT < FILE`",
    "SyntaxError": "the original file does not parse either; correct it first",
    "MemoryError": "the program ran out of memory; try smaller data",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """A finding at a line that took part in a failure.

    Attributes:
        place: the line.
        finding: the finding that `devicefix check` reports there.
        advice: what to do about it.
    """

    place: Location
    finding: Finding
    advice: str


def causes(run: Run, settings: Settings) -> list[Cause]:
    """Return the findings of all rules at the lines where a run requested CUDA or failed.

    Args:
        run: the run.
        settings: the settings that the program was rewritten with.
    """
    places = [request.place for request in run.requests if request.library is None]
    places += run.failure.frames[::-1] if run.failure else []
    found: dict[tuple[str, int], Cause] = {}
    for place in places:
        for finding in _findings(place.file):
            if finding.line <= place.line <= finding.end_line and (place.file, place.line) not in found:
                found[place.file, place.line] = Cause(place, finding, _advice_on(finding, settings))
    return list(found.values())


def _findings(path: str) -> list[Finding]:
    """Return the findings of all rules in a file."""
    if not os.path.isfile(path):
        return []
    return check_files([Path(path)], Settings(quiet=True))[0].result.findings


def _advice_on(finding: Finding, settings: Settings) -> str:
    if not settings.enabled(finding.code):
        return f"{finding.code} is disabled; enable it to rewrite this line"
    if finding.safety is None:
        return f"there is no automatic fix; see `devicefix explain {finding.code}`"
    if finding.safety.value == "unsafe" and not settings.unsafe_fixes:
        return "the fix is unsafe, since it may change a run on CUDA; review it and add `--unsafe-fixes`"
    return f"see `devicefix explain {finding.code}`"


def advice(run: Run) -> str:
    """Return advice on a failure that no finding explains; empty if there is none."""
    return _ADVICE.get(run.failure.error.partition(":")[0], "") if run.failure else ""
