"""The findings as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from devicefix.config.printable import printable
from devicefix.config.version import __version__
from devicefix.model import Finding, Safety
from devicefix.report import statistics
from devicefix.report.changes import mark_finding, shortened
from devicefix.report.checked import Checked, File
from devicefix.report.environment import environment
from devicefix.report.hunks import Row, by_cell
from devicefix.report.wording import count, place
from devicefix.rewrite.preview import title
from devicefix.rules.pages import url
from devicefix.rules.registry import RULES

CONTEXT = 1  # lines around a finding without a fix
MAX_LINES = 20  # lines of such a finding


class Shown(NamedTuple):
    """A finding as the page shows it.

    Attributes:
        finding: the finding.
        place: its position in the file.
        safety: the label of its fix, empty without one.
        title: the summary of its fix, empty without one.
        groups: the hunks of its fix, or its own lines.
    """

    finding: Finding
    place: str
    safety: str
    title: str
    groups: list[list[Row]]


def render(checked: Checked) -> Iterator[str]:
    """Yield the text in pieces."""
    template = environment(printable=printable, shortened=shortened, count=count).get_template(
        "findings.html.jinja"
    )
    values: dict[str, Any] = {
        "checked": checked,
        "files": ((file, [_shown(file, finding) for finding in file.findings]) for file in checked.files),
        "counts": statistics.counts(checked),
        "urls": {code: url(rule) for code, rule in RULES.items()},
        "version": __version__,
    }
    yield from template.generate(values)


def _shown(file: File, finding: Finding) -> Shown:
    fix = finding.fix
    safety = {None: "", Safety.SAFE: "safe fix", Safety.UNSAFE: "unsafe fix"}[finding.safety]
    if fix is None or not fix.replacements:
        return Shown(finding, place(finding), safety, "", [_place(file, finding)])
    groups = [rows for found in by_cell(file, fix.replacements).values() for rows in found]
    return Shown(finding, place(finding), safety, title(finding), groups)


def _place(file: File, finding: Finding) -> list[Row]:
    """Return the lines of a finding and its context, with the finding marked."""
    lines = file.lines(finding.cell)
    first = max(finding.line - CONTEXT, 1)
    last = min(finding.end_line + CONTEXT, finding.line + MAX_LINES, len(lines))
    return [
        Row(" ", number, mark_finding(lines[number - 1], number, finding))
        for number in range(first, last + 1)
    ]
