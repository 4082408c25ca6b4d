"""Findings grouped by file."""

from __future__ import annotations

from collections.abc import Iterator

import click

from devicefix.config.printable import printable, printable_path
from devicefix.report.checked import Checked, File
from devicefix.report.concise import mark
from devicefix.report.wording import place


def render(checked: Checked) -> Iterator[str]:
    """Yield the text in pieces."""
    for file in checked.files:
        name = click.style(printable_path(file.path), bold=True, underline=True)
        yield f"{name}:\n{''.join(_lines(file, checked))}\n"


def _lines(file: File, checked: Checked) -> Iterator[str]:
    places = [place(finding).rpartition(":") for finding in file.findings]
    lines, columns = (max(len(at[part]) for at in places) for part in (0, 2))
    for finding, (line, _, column) in zip(file.findings, places, strict=True):
        code = click.style(finding.code, fg="red", bold=True)
        where = f"{line:>{lines}}:{column:<{columns}}"
        yield f"  {where} {code} {mark(checked.is_fixable(file.path, finding))}{printable(finding.message)}\n"
