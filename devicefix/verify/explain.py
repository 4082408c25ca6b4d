"""Why a run failed, as far as the findings can tell, and what to do."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from devicefix.config.settings import Settings
from devicefix.model import Finding
from devicefix.runner.run import check_files
from devicefix.verify.verdict import Place, Run

_CAUSES = {
    "FileNotFoundError": "a file is missing: has the untouched program what it needs to run this far?",
    "ModuleNotFoundError": "a package is missing: install it, or choose another environment with --python",
    "EOFError": "it reads the standard input: give it some, as in `devicefix verify SCRIPT < FILE`",
    "SyntaxError": "the file does not parse, also before the rewrite",
    "MemoryError": "it needs more memory than there is: try smaller data",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """A finding at a line that took part in a failure.

    Attributes:
        place: the line.
        finding: what `devicefix check` says of it.
        advice: what to do.
    """

    place: Place
    finding: Finding
    advice: str


def causes(run: Run, settings: Settings) -> list[Cause]:
    """The findings, of any rule, at the lines where a run asked for CUDA or ended.

    Args:
        run: the run.
        settings: those that the program was rewritten with.
    """
    places = [request.place for request in run.requests if request.library is None]
    places += run.failure.frames[::-1] if run.failure else []
    found: dict[tuple[str, int], Cause] = {}
    for place in places:
        for finding in _findings(place.file):
            if finding.line <= place.line <= finding.end_line and (place.file, place.line) not in found:
                found[place.file, place.line] = Cause(place, finding, _advice(finding, settings))
    return list(found.values())


def _findings(path: str) -> list[Finding]:
    """What all rules find in a file."""
    if not os.path.isfile(path):
        return []
    return check_files([Path(path)], Settings(quiet=True))[0].result.findings


def _advice(finding: Finding, settings: Settings) -> str:
    if not settings.enabled(finding.code):
        return f"{finding.code} is switched off: rewrite it as well"
    if finding.safety is None:
        return f"this is left for you: see `devicefix explain {finding.code}`"
    if finding.safety.value == "unsafe" and not settings.unsafe_fixes:
        return "its fix may change a run on CUDA: look at it, and apply it with --unsafe-fixes"
    return f"see `devicefix explain {finding.code}`"


def advice(run: Run) -> str:
    """What to do about a failure that no finding explains; empty where that is not known."""
    return _CAUSES.get(run.failure.error.partition(":")[0], "") if run.failure else ""
