"""Checking the files that the command line names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from devicefix.cli.errors import print_error, print_warning
from devicefix.cli.options import STDIN
from devicefix.config.printable import printable_path
from devicefix.config.settings import Settings
from devicefix.model import Outcome, Result

if TYPE_CHECKING:
    from devicefix.report.checked import Checked


def check_paths(paths: tuple[Path, ...], stdin_filename: str | None, settings: Settings) -> Checked:
    """Check the files that the paths name, and print an error for each file that cannot be checked.

    Args:
        paths: files and folders, or only the standard input.
        stdin_filename: the file name of the standard input.
        settings: the settings of the run.

    Raises:
        UsageError: the standard input is combined with other paths.
    """
    from devicefix.report.checked import Checked
    from devicefix.runner import pool
    from devicefix.runner.run import check_files, check_text

    unread: list[OSError] = []
    pool.collect_less()
    if STDIN not in paths:
        outcomes = check_files(list_files(paths, settings, unread), settings)
    elif len(paths) > 1:
        raise click.UsageError("the standard input (-) cannot be combined with other paths")
    else:
        data = sys.stdin.buffer.read(settings.largest + 1)
        outcomes = [check_text(data, stdin_filename or "-", settings)]
    failed = [
        Outcome(str(error.filename), Result(str(error.filename)), error=error.strerror or str(error))
        for error in unread
    ]
    failed += (outcome for outcome in outcomes if outcome.error)
    for outcome in failed:
        print_error(outcome.path, outcome.error or "")
    return Checked([outcome for outcome in outcomes if not outcome.error], failed, settings)


def list_files(paths: tuple[Path, ...], settings: Settings, unread: list[OSError]) -> list[Path]:
    """Return the files that the paths name; errors of reading folders are added to `unread`."""
    from devicefix.files.discover import GitTooSlow
    from devicefix.runner.run import find_files

    def onerror(problem: OSError) -> None:
        if isinstance(problem, GitTooSlow):
            print_warning(str(problem.filename), str(problem.strerror))
        else:
            unread.append(problem)

    found = find_files(paths, settings, onerror)
    if settings.verbose:
        for file in found:
            click.echo(printable_path(str(file)), err=True)
    if not found:
        click.echo(f"Warning: no {'' if settings.config_files else 'Python '}files found", err=True)
    return found
