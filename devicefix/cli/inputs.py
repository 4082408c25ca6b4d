"""Checking the files that the command line names."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from devicefix.cli.errors import print_error, print_warning
from devicefix.cli.options import STDIN
from devicefix.config.printable import printable_path
from devicefix.config.resolver import Resolver
from devicefix.model import Outcome, Result

if TYPE_CHECKING:
    from devicefix.report.checked import Checked


def check_paths(paths: tuple[Path, ...], stdin_filename: str | None, resolver: Resolver) -> Checked:
    """Check the files that the paths name, and print an error for each file that cannot be checked.

    Args:
        paths: files and folders, or only the standard input.
        stdin_filename: the file name of the standard input.
        resolver: the settings of the run and of its files.

    Raises:
        UsageError: the standard input is combined with other paths.
    """
    from devicefix.report.checked import Checked
    from devicefix.runner import pool
    from devicefix.runner.find import Choice
    from devicefix.runner.run import Projects, check_files, check_text

    unread: list[OSError] = []
    pool.collect_less()
    if STDIN not in paths:
        outcomes = check_files(list_files(paths, resolver, unread), resolver, paths)
    elif len(paths) > 1:
        raise click.UsageError("standard input (-) cannot be combined with other paths")
    else:
        path = stdin_filename or str(STDIN)
        settings = resolver.of(path)
        data = sys.stdin.buffer.read(settings.largest + 1)
        if stdin_filename and Choice(resolver).excludes_named(path):
            outcomes = [Outcome(path, Result(path), data)]
        else:
            facts = partial(Projects(resolver).around, path) if stdin_filename else None
            outcomes = [check_text(data, path, settings, facts)]
    problems = ((str(error.filename), error.strerror or str(error)) for error in unread)
    failed = [Outcome(path, Result(path), error=problem) for path, problem in problems]
    failed += (outcome for outcome in outcomes if outcome.error)
    for outcome in failed:
        print_error(outcome.path, outcome.error or "")
    return Checked([outcome for outcome in outcomes if not outcome.error], failed, resolver)


def listed(paths: tuple[Path, ...], stdin_filename: str | None, resolver: Resolver) -> list[Path]:
    """Return the files that would be checked, and print an error for each folder that cannot be read."""
    if STDIN in paths:
        return [Path(stdin_filename or str(STDIN))]
    unread: list[OSError] = []
    found = list_files(paths, resolver, unread)
    for error in unread:
        print_error(str(error.filename), error.strerror or str(error))
    return found


def list_files(paths: tuple[Path, ...], resolver: Resolver, unread: list[OSError]) -> list[Path]:
    """Return the files that the paths name; errors of reading folders are added to `unread`."""
    from devicefix.files.discover import GitTooSlow
    from devicefix.runner.find import find_files

    def onerror(problem: OSError) -> None:
        if isinstance(problem, GitTooSlow):
            print_warning(str(problem.filename), str(problem.strerror))
        else:
            unread.append(problem)

    found = find_files(paths, resolver, onerror)
    settings = resolver.root
    if settings.verbose:
        for file in found:
            click.echo(printable_path(str(file)), err=True)
    if not found:
        hint = "; to check configuration files and scripts, add `--config-files`"
        hint = "; `--force-exclude` also excludes files that you name" if settings.force_exclude else hint
        known = settings.config_files or settings.environment
        click.echo("Warning: no files found" if known else f"Warning: no Python files found{hint}", err=True)
    return found
