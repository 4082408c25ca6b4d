"""The result of a migration as one self-contained HTML page, with all findings."""

from __future__ import annotations

import click

from devicefix.config.printable import printable
from devicefix.config.version import __version__
from devicefix.migrate import page
from devicefix.migrate.proof import passes
from devicefix.migrate.session import Migration, coverage
from devicefix.report.environment import environment
from devicefix.report.wording import count, place
from devicefix.rules.pages import url
from devicefix.rules.registry import RULES
from devicefix.verify.session import Report


def html(done: Migration) -> str:
    """Return the page."""
    templates = environment(printable=printable, place=place, count=count, result=_result)
    runs = list(zip(done.commands, done.reports, strict=False))
    ran, lines = coverage(done.reports)
    text = templates.get_template("migrate.html.jinja").render(
        done=done,
        name=page.name(done),
        about=page.about(done),
        amount=page.amount(done),
        executed=page.executed(done),
        failing=[(command, report) for command, report in runs if not passes(report)],
        groups=page.groups(done),
        fixed=page.fixed_by_rule(done),
        runs=runs,
        ran=ran,
        lines=lines,
        urls={code: url(rule) for code, rule in RULES.items()},
        version=__version__,
    )
    return text.lstrip()  # the macros leave blank lines


def _result(report: Report) -> str:
    return click.unstyle(page.result(report))
