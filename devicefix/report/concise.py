"""One line a finding: `path:line:col: CODE [*] message`, in a notebook `path:cell 3:line:col: ...`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from devicefix.model import Finding, Safety

if TYPE_CHECKING:
    from devicefix.report.checked import Checked


def render(checked: Checked) -> Iterator[str]:
    """The text, in pieces."""
    for outcome in checked.outcomes:
        for finding in outcome.result.findings:
            yield f"{line(outcome.path, finding)}\n"


def line(path: str, finding: Finding) -> str:
    """A finding in one line; `[*]` says that it has a safe fix."""
    return f"{_place(path, finding)} {mark(finding)}{printable(finding.message)}"


def mark(finding: Finding) -> str:
    """What goes before the message of a finding that has a safe fix."""
    return click.style("[*] ", fg="cyan") if finding.safety is Safety.SAFE else ""


def fixed(path: str, finding: Finding) -> str:
    """A finding that is no more, with the place where it was."""
    return f"{_place(path, finding)} {click.style('fixed:', fg='green')} {printable(finding.message)}"


def remaining(path: str, finding: Finding) -> str:
    """A finding that a rewrite left, with what would fix it if anything does."""
    hint = " (fixable with --unsafe-fixes)" if finding.safety is Safety.UNSAFE else ""
    return line(path, finding) + hint


def printable(text: str) -> str:
    """The text with what would not stay on its line, or could play with the terminal, escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _place(path: str, finding: Finding) -> str:
    cell = f"cell {finding.cell}:" if finding.cell else ""
    where = f"{click.style(printable(path), bold=True)}:{cell}{finding.line}:{finding.column}:"
    return f"{where} {click.style(finding.code, fg='red', bold=True)}"
