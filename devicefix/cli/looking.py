"""What the commands that look at files share: which files, what is wrong with them, the exit status."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from devicefix.cli.options import STDIN, TROUBLE
from devicefix.config.settings import Settings

if TYPE_CHECKING:
    from devicefix.model import Outcome

CLEAN, FINDINGS = 0, 1


def look(
    paths: tuple[Path, ...], stdin_filename: str | None, settings: Settings
) -> tuple[list[Outcome], int]:
    """Look at what the paths name, and complain of what cannot be looked at.

    Returns:
        What became of each file that was looked at, and how many could not be.
    """
    sound, failed = survey(paths, stdin_filename, settings)
    return sound, len(failed)


def survey(
    paths: tuple[Path, ...], stdin_filename: str | None, settings: Settings
) -> tuple[list[Outcome], list[Outcome]]:
    """As `look`, with what is wrong with each file that could not be looked at."""
    from devicefix.model import Outcome, Result
    from devicefix.runner import pool
    from devicefix.runner.run import check_files, check_text

    trouble: list[OSError] = []
    pool.collect_less()
    if STDIN not in paths:
        outcomes = check_files(listed(paths, settings, trouble), settings)
    elif len(paths) > 1:
        raise click.UsageError("the standard input (-) does not go together with other paths")
    else:
        data = sys.stdin.buffer.read()
        outcomes = [check_text(data, stdin_filename or "-", settings)]
    failed = [
        Outcome(str(problem.filename), Result(str(problem.filename)), error=problem.strerror or str(problem))
        for problem in trouble
    ]
    failed += (outcome for outcome in outcomes if outcome.error)
    for outcome in failed:
        complain(outcome.path, outcome.error or "")
    return [outcome for outcome in outcomes if not outcome.error], failed


def listed(paths: tuple[Path, ...], settings: Settings, trouble: list[OSError]) -> list[Path]:
    """The files that the paths name; what cannot be read of them goes into `trouble`."""
    from devicefix.report.wording import printable
    from devicefix.runner.run import find_files

    found = find_files(paths, settings, trouble.append)
    if settings.verbose:
        for file in found:
            click.echo(printable(str(file)), err=True)
    if not found:
        click.echo(f"Warning: no {'' if settings.config_files else 'Python '}files found", err=True)
    return found


def complain(path: str, problem: str) -> None:
    """Print what is wrong with a file."""
    from devicefix.report.wording import printable

    click.echo(f"{printable(path)}: {click.style('error:', fg='red')} {printable(problem)}", err=True)


def warn(path: str, problem: str) -> None:
    """Print what is odd about a file."""
    from devicefix.report.wording import printable

    click.echo(f"{printable(path)}: {click.style('warning:', fg='yellow')} {printable(problem)}", err=True)


def status(failed: int, findings: bool) -> int:
    """The exit status."""
    return TROUBLE if failed else FINDINGS if findings else CLEAN
