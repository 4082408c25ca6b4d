"""One line a finding: `path:line:col: CODE [*] message`."""

from __future__ import annotations

import click

from devicefix.finding import Finding, Safety


def line(path: str, finding: Finding) -> str:
    """A finding in one line; `[*]` says that it has a safe fix."""
    mark = click.style("[*] ", fg="cyan") if finding.safety is Safety.SAFE else ""
    return f"{_place(path, finding)} {mark}{printable(finding.message)}"


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
    where = f"{click.style(printable(path), bold=True)}:{finding.line}:{finding.column}:"
    return f"{where} {click.style(finding.code, fg='red', bold=True)}"
