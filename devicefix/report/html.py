"""A page with the findings, which needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from devicefix.config.version import __version__
from devicefix.model import Finding, Safety
from devicefix.report import statistics
from devicefix.report.checked import Checked, File, place
from devicefix.report.concise import printable
from devicefix.report.excerpt import Row, hunks, shortened
from devicefix.rewrite.preview import title

CONTEXT = 1  # lines around a finding that has no fix
MOST = 20  # lines of one


class Shown(NamedTuple):
    """A finding as the page shows it."""

    finding: Finding
    place: str
    safety: str
    title: str
    groups: list[list[Row]]


def render(checked: Checked) -> Iterator[str]:
    """The text, in pieces."""
    from devicefix.rules.pages import url
    from devicefix.rules.registry import RULES

    environment = Environment(
        loader=PackageLoader("devicefix.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"printable": printable, "shortened": shortened}
    urls = {code: url(rule) for code, rule in RULES.items()}
    page = environment.get_template("findings.html.jinja")
    values: dict[str, Any] = {
        "checked": checked,
        "files": ((file, [_shown(file, finding) for finding in file.findings]) for file in checked.files),
        "counts": statistics.counts(checked),
        "urls": urls,
        "version": __version__,
    }
    yield from page.generate(values)


def _shown(file: File, finding: Finding) -> Shown:
    fix = finding.fix
    safety = {None: "", Safety.SAFE: "safe fix", Safety.UNSAFE: "unsafe fix"}[finding.safety]
    if fix is None or not fix.replacements:
        return Shown(finding, place(finding), safety, "", [_place(file, finding)])
    cells = sorted({each.cell for each in fix.replacements}, key=lambda cell: cell or 0)
    groups = [
        rows
        for cell in cells
        for rows in hunks(file.lines(cell), (each for each in fix.replacements if each.cell == cell))
    ]
    return Shown(finding, place(finding), safety, title(finding), groups)


def _place(file: File, finding: Finding) -> list[Row]:
    """The lines of a finding, with its place marked, and some around it."""
    lines = file.lines(finding.cell)
    first = max(finding.line - CONTEXT, 1)
    last = min(finding.end_line + CONTEXT, finding.line + MOST, len(lines))
    return [
        Row(" ", number, _marked(lines[number - 1], number, finding)) for number in range(first, last + 1)
    ]


def _marked(text: str, number: int, finding: Finding) -> list[str]:
    """A line in parts, the second of which belongs to the finding."""
    if not finding.line <= number <= finding.end_line:
        return [text]
    start = finding.column - 1 if number == finding.line else len(text) - len(text.lstrip())
    end = finding.end_column - 1 if number == finding.end_line else len(text)
    return [text[:start], text[start:end], text[end:]]
