"""`devicefix check --diff-base`: only the findings on changed lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from devicefix.cli.errors import os_error
from devicefix.cli.options import STDIN
from devicefix.report.wording import count

if TYPE_CHECKING:
    from devicefix.report.checked import Checked
    from devicefix.runner.git import Since

diff_base_option = click.option(
    "--diff-base",
    metavar="REV",
    help="Report only findings on lines changed since the merge base with this branch, tag or commit. "
    "Cannot be used with --fix.",
)


def changes_since(revision: str | None, paths: tuple[Path, ...], stdin_filename: str | None) -> Since | None:
    """Return the changes since a revision, None without one.

    Args:
        revision: the value of --diff-base.
        paths: the paths that the command line names.
        stdin_filename: the file name of the standard input.

    Raises:
        ConfigError: git does not know a path or the revision.
        UsageError: the standard input has no file name.
    """
    if revision is None:
        return None
    from devicefix.runner.git import Since

    if STDIN in paths:
        if stdin_filename is None:
            raise click.UsageError("--diff-base with standard input (-) needs --stdin-filename FILE")
        paths = (Path(stdin_filename),)
    return Since(revision, paths)


def hide_unchanged(checked: Checked, changes: Since | None) -> Checked:
    """Return the results without the findings on unchanged lines, and print how many those are.

    Args:
        checked: the results of the run.
        changes: the changes since a revision; None keeps all findings.

    Raises:
        CommandError: a file cannot be read.
        ConfigError: git does not know a file's work tree, or the revision in it.
    """
    if changes is None:
        return checked
    outcomes, hidden = list(checked.outcomes), 0
    try:
        for index, outcome in enumerate(outcomes):
            if found := outcome.result.findings:
                data = outcome.before or Path(outcome.path).read_bytes()
                limited = changes.limited(outcome.result, data)
                outcomes[index] = replace(outcome, result=limited)
                hidden += len(found) - len(limited.findings)
    except OSError as error:
        raise os_error(error.filename, error) from None
    if hidden and not checked.settings.quiet:
        message = f"{count(hidden, 'finding')} on unchanged lines not shown (--diff-base)."
        click.echo(message, err=True)
    return replace(checked, outcomes=outcomes)
