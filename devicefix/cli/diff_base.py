"""`devicefix check --diff-base`: only what is on lines that have changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from devicefix.cli.options import STDIN, Trouble

if TYPE_CHECKING:
    from devicefix.model import Outcome
    from devicefix.runner.git import Since

Command = TypeVar("Command", bound=Callable[..., Any])


def diff_base_option(command: Command) -> Command:
    """The option that names the revision."""
    return click.option(
        "--diff-base",
        metavar="REV",
        help="Report only what is on lines changed since this branch, tag or commit was left.",
    )(command)


def since(revision: str | None, paths: tuple[Path, ...], stdin_filename: str | None) -> Since | None:
    """What has changed since a revision; asked before anything is looked at.

    Raises:
        Trouble: git does not know a path or the revision.
    """
    if revision is None:
        return None
    from devicefix.runner.git import DiffBaseError, Since

    if STDIN in paths:
        if stdin_filename is None:
            raise click.UsageError("--diff-base with the standard input (-) needs --stdin-filename FILE")
        paths = (Path(stdin_filename),)
    try:
        return Since(revision, paths)
    except DiffBaseError as problem:
        raise Trouble(f"--diff-base: {problem}") from None


def limited(outcomes: list[Outcome], changes: Since | None) -> list[Outcome]:
    """What became of files, less what is on lines that have not changed.

    Raises:
        Trouble: git does not know a file's work tree, or the revision in it.
    """
    if changes is None:
        return outcomes
    from devicefix.runner.git import DiffBaseError

    try:
        return [
            replace(each, result=changes.limited(each.result, each.before or Path(each.path).read_bytes()))
            if each.result.findings
            else each
            for each in outcomes
        ]
    except DiffBaseError as problem:
        raise Trouble(f"--diff-base: {problem}") from None
    except OSError as problem:
        raise Trouble(f"{problem.filename}: {problem.strerror or problem}") from None
