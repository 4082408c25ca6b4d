"""Writing and showing the changes of fixes, for `check --fix` and `rewrite` alike."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from devicefix.cli.errors import UNCHANGED, CommandError, print_error, print_warning, some
from devicefix.config.printable import printable_lines, printable_path
from devicefix.files import write as files
from devicefix.report.diff import coloured, unified

if TYPE_CHECKING:
    from devicefix.model import Outcome


def changes_of(outcomes: Iterable[Outcome]) -> list[files.Change]:
    """Return the changes to write."""
    made = ((each.path, each.before, each.result.output) for each in outcomes)
    return [files.Change(path, before, after) for path, before, after in made if after is not None]


def check_changes(changes: list[files.Change], require_clean: bool) -> None:
    """Warn about files that git cannot restore, and about hard links.

    Args:
        changes: the changes to write.
        require_clean: whether files that git cannot restore are an error.

    Raises:
        CommandError: git cannot restore a file, and `require_clean` is set.
    """
    from devicefix.runner import worktree

    uncommitted, outside = worktree.uncommitted(changes, staged=not require_clean)
    if require_clean and (unsafe := uncommitted + outside):
        why = f"the content of {some(unsafe)} is not committed in git (--require-clean)"
        raise CommandError(f"nothing was written: {why}")
    if uncommitted:
        warning = f"the old content of {some(uncommitted)} is neither committed nor staged in git"
        click.echo(f"Warning: {warning}", err=True)
    for change in changes:
        if files.other_names(change.path):
            print_warning(change.path, "other hard links to this file keep the old content")


def write_changes(changes: list[files.Change]) -> set[str]:
    """Write the changes, print errors for files that cannot be written, and return those files."""
    unwritten: set[str] = set()

    def onerror(path: str, error: OSError) -> None:
        print_error(path, error.strerror or str(error))
        unwritten.add(path)

    files.write_each(changes, onerror)
    return unwritten


def write_all(changes: list[files.Change]) -> None:
    """Write all of the changes or none.

    Raises:
        CommandError: a file cannot be written.
    """
    from devicefix.files.commit import CommitError, commit

    try:
        commit(changes)
    except CommitError as error:
        names = ", ".join(map(printable_path, error.left))
        left = f"These files were rewritten and could not be restored: {names}"
        raise CommandError(str(error), left if names else UNCHANGED) from None


def print_changes(outcomes: Iterable[Outcome], folder: Path | None) -> None:
    """Print the new content of files, or the changes as a patch that is safe to show on a terminal.

    As in git's own patches, paths are relative to the top of the work tree. Without git they are relative
    to the current folder, or to `folder` if that is outside the current folder.

    Args:
        outcomes: the rewritten files.
        folder: the folder that holds them all, for a patch.
    """
    if folder is None:
        for outcome in outcomes:
            print_bytes(outcome.result.output or outcome.before)
        return
    from devicefix.files.discover import root_of
    from devicefix.files.system import relative

    top = root_of(folder)
    colour = click.get_current_context().color is not False
    for outcome in outcomes:
        if outcome.result.output is not None:
            name = relative(os.path.realpath(outcome.path), top)
            patch = unified(name, outcome.before, outcome.result.output)
            print_bytes(patch, coloured if colour else str)


def print_bytes(data: bytes, on_terminal: Callable[[str], str] = str) -> None:
    """Print bytes as they are, or on a terminal as text that can't control it.

    Args:
        data: the bytes, which may be code that is not trusted.
        on_terminal: makes the text for a terminal from one that is safe.
    """
    if sys.stdout.isatty():
        click.echo(on_terminal(printable_lines(data.decode(errors="backslashreplace"))), nl=False)
    else:
        click.echo(data, nl=False)
