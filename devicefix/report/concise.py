"""One line per finding: `path:line:col: CODE [*] message`, or `path:cell 3:line:col: ...` in notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from devicefix.config.printable import printable, printable_path
from devicefix.model import Finding, Safety
from devicefix.report.wording import place

if TYPE_CHECKING:
    from devicefix.report.checked import Checked


def render(checked: Checked) -> Iterator[str]:
    """Yield the text in pieces."""
    for outcome in checked.outcomes:
        for finding in outcome.result.findings:
            yield f"{line(outcome.path, finding, checked.is_fixable(outcome.path, finding))}\n"


def line(path: str, finding: Finding, fixable: bool) -> str:
    """Return a finding as one line, with `[*]` if `--fix` would fix it."""
    return f"{_location(path, finding)} {mark(fixable)}{printable(finding.message)}"


def mark(fixable: bool) -> str:
    """Return the mark before the message of a finding that `--fix` would fix; empty for other findings."""
    return click.style("[*] ", fg="cyan") if fixable else ""


def fixed(path: str, finding: Finding) -> str:
    """Return a fixed finding as one line, with its former position."""
    return f"{_location(path, finding)} {click.style('fixed:', fg='green')} {printable(finding.message)}"


def remaining(path: str, finding: Finding, fixable: bool) -> str:
    """Return a finding that a rewrite has left as one line, with a hint if it has an unsafe fix."""
    hint = " (fixable with --unsafe-fixes)" if finding.safety is Safety.UNSAFE else ""
    return line(path, finding, fixable) + hint


def _location(path: str, finding: Finding) -> str:
    where = f"{click.style(printable_path(path), bold=True)}:{place(finding)}:"
    return f"{where} {click.style(finding.code, fg='red', bold=True)}"
