"""The result of a migration as one self-contained HTML page, with all findings."""

from __future__ import annotations

from collections.abc import Iterator

import click

from devicefix.config.printable import printable
from devicefix.config.version import __version__
from devicefix.migrate import page
from devicefix.migrate.proof import passes
from devicefix.migrate.session import Migration
from devicefix.report.diff import unified
from devicefix.report.environment import environment
from devicefix.report.wording import count, place
from devicefix.rules.pages import url
from devicefix.rules.registry import RULES
from devicefix.verify.session import Report

_ROWS = {"-": "minus", "+": "plus"}


def html(done: Migration) -> str:
    """Return the page."""
    evidence = page.evidence_of
    templates = environment(printable=printable, place=place, count=count, result=_result, evidence=evidence)
    runs = list(zip(done.commands, done.reports, strict=False))
    text = templates.get_template("migrate.html.jinja").render(
        done=done,
        name=page.name(done),
        about=page.about(done),
        amount=page.amount(done),
        executed=page.executed(done),
        failing=[(command, report) for command, report in runs if not passes(report)],
        groups=page.groups(done),
        fixed=page.fixed_by_rule(done),
        kept=page.kept_by_evidence(done),
        changes=list(_changes(done)),
        runs=runs,
        lines_ran=page.lines_ran(done),
        urls={code: url(rule) for code, rule in RULES.items()},
        version=__version__,
    )
    return text.lstrip()  # the macros leave blank lines


def _changes(done: Migration) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the path of each file that changes, and the lines of its diff, each with the class of its row."""
    for change in sorted(done.changes, key=lambda change: change.path):
        diff = unified("", change.before, change.after).decode(errors="replace")
        lines = diff.partition("\n@@")[2].splitlines()
        yield change.path, [("", f"@@{lines[0]}"), *((_ROWS.get(line[:1], ""), line) for line in lines[1:])]


def _result(report: Report) -> str:
    return click.unstyle(page.result(report))
