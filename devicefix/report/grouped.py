"""Findings grouped by file."""

from __future__ import annotations

from collections.abc import Iterator

import click

from devicefix.config.printable import printable, printable_path
from devicefix.config.settings import Settings
from devicefix.report.checked import Checked, File
from devicefix.report.concise import mark
from devicefix.report.wording import place


def render(checked: Checked) -> Iterator[str]:
    """Yield the text in pieces."""
    for file in checked.files:
        name = click.style(printable_path(file.path), bold=True, underline=True)
        yield f"{name}:\n{''.join(_lines(file, checked.settings))}\n"


def _lines(file: File, settings: Settings) -> Iterator[str]:
    places = [place(finding).rpartition(":") for finding in file.findings]
    lines, columns = (max(len(at[part]) for at in places) for part in (0, 2))
    for finding, (line, _, column) in zip(file.findings, places, strict=True):
        code = click.style(finding.code, fg="red", bold=True)
        where = f"{line:>{lines}}:{column:<{columns}}"
        yield f"  {where} {code} {mark(finding, settings)}{printable(finding.message)}\n"
