"""`devicefix rewrite`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from devicefix.cli.errors import CommandError, exit_status, print_errors, print_warning, some
from devicefix.cli.inputs import check_paths
from devicefix.cli.options import STDIN, common_folder, common_options, settings_for, unsafe_option
from devicefix.cli.verify import Limits, limit_options
from devicefix.config.printable import printable_lines
from devicefix.files import write as files
from devicefix.report import concise, totals
from devicefix.report.diff import coloured, unified

if TYPE_CHECKING:
    from devicefix.config.settings import Settings
    from devicefix.model import Outcome

UNCHANGED = "Nothing was written; all files are unchanged."


@click.command(short_help="Rewrite files, or print a patch.")
@common_options
@click.option("--in-place", "-i", is_flag=True, help="Write the files instead of printing a patch.")
@click.option("--diff", is_flag=True, help="Print the patch also with --in-place or -.")
@unsafe_option
@click.option(
    "--verify",
    "command",
    metavar="COMMAND",
    help="With --in-place: first run this as `devicefix verify -c` does, and write only if it passes.",
)
@limit_options
@click.option(
    "--require-clean", is_flag=True, help="With --in-place: write nothing if a file is not committed in git."
)
@click.pass_context
def rewrite(
    ctx: click.Context,
    /,
    *,
    paths: tuple[Path, ...],
    config_file: Path | None,
    stdin_filename: str | None,
    in_place: bool,
    diff: bool,
    exit_zero: bool,
    command: str | None,
    timeout: float,
    memory: int | None,
    steps: int | None,
    require_clean: bool,
    **given: Any,
) -> None:
    """Rewrite PATHS to run on any device: files, folders, or - for the standard input.

    Prints a patch for `git apply`, unless --in-place is given. The rewritten standard input goes to the
    standard output.
    """
    _check_usage(paths, in_place, {"--verify": command is not None, "--require-clean": require_clean})
    settings = replace(settings_for(paths, config_file, stdin_filename, given), fix=True)
    checked = check_paths(paths, stdin_filename, settings)
    outcomes, failed = list(checked.outcomes), len(checked.failed)
    piped = STDIN in paths and not diff
    if piped:
        for outcome in outcomes:
            print_bytes(outcome.result.output or outcome.before)
    elif diff or not in_place:
        print_patch(outcomes, common_folder(paths))
    if in_place:
        changes = changes_of(outcomes)
        check_changes(changes, require_clean)
        unwritten = set()
        if command is not None:
            write_if_verified(outcomes, changes, command, settings, Limits(timeout, memory, steps))
        else:
            unwritten = write_changes(changes)
        failed += len(unwritten)
        outcomes = [outcome for outcome in outcomes if outcome.path not in unwritten]
    if in_place or piped:
        print_findings(outcomes, settings.quiet, err=piped)
    results = [outcome.result for outcome in outcomes]
    if not settings.quiet:
        click.echo(totals.rewritten(results, failed, written=in_place or piped), err=not in_place)
    pending = not (in_place or piped) and any(result.output is not None for result in results)
    remaining = pending or any(result.remaining for result in results)
    ctx.exit(exit_status(failed, remaining and not exit_zero))


def _check_usage(paths: tuple[Path, ...], in_place: bool, needing: dict[str, bool]) -> None:
    """Refuse options that cannot be used together.

    Args:
        paths: the paths that the command line names.
        in_place: whether --in-place is given.
        needing: the options that need --in-place, with whether they are given.

    Raises:
        UsageError: an option is used without one that it needs.
    """
    if STDIN in paths and in_place:
        raise click.UsageError("--in-place cannot write to the standard input (-)")
    for option, given in needing.items():
        if given and not in_place:
            raise click.UsageError(f"{option} needs --in-place")


def changes_of(outcomes: Iterable[Outcome]) -> list[files.Change]:
    """Return the changes to write."""
    return [
        files.Change(outcome.path, outcome.before, outcome.result.output)
        for outcome in outcomes
        if outcome.result.output is not None
    ]


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
        raise CommandError(f"nothing was written: {_subject(unsafe)} not committed in git (--require-clean)")
    if uncommitted:
        click.echo(f"Warning: {_subject(uncommitted)} neither committed nor staged in git", err=True)
    for change in changes:
        if files.other_names(change.path):
            print_warning(change.path, "other hard links to this file keep the old content")


def _subject(paths: list[str]) -> str:
    """Return the number of paths and the first ones, as the beginning of a sentence."""
    return f"{some(paths)} {'is' if len(paths) == 1 else 'are'}"


def write_changes(changes: list[files.Change]) -> set[str]:
    """Write the changes, print errors for files that cannot be written, and return those files."""
    errors: dict[str, str] = {}

    def onerror(path: str, error: OSError) -> None:
        errors[path] = error.strerror or str(error)

    files.write_each(changes, onerror)
    print_errors(errors)
    return set(errors)


def write_if_verified(
    outcomes: list[Outcome], changes: list[files.Change], command: str, settings: Settings, limits: Limits
) -> None:
    """Write all changes if a command passes with them; otherwise write none and end the program.

    The command runs with the changes in memory, so that nothing has to be restored if it is interrupted.

    Args:
        outcomes: the rewritten files.
        changes: the changes to write.
        command: a command line that starts Python.
        settings: the settings of the rewrite.
        limits: the limits of the run.

    Raises:
        CommandError: the changes cannot be written.
    """
    from devicefix.cli.verify import STATUSES, show_report, verify_outcomes
    from devicefix.files.commit import CommitError, commit

    if not changes:
        return
    try:
        report, passed = verify_outcomes(outcomes, command, settings, limits)
    except KeyboardInterrupt:
        click.echo(f"Interrupted. {UNCHANGED}", err=True)
        raise
    show_report(report)
    if not passed:
        click.echo(UNCHANGED)
        click.get_current_context().exit(STATUSES[report.verdict.value])
    try:
        commit(changes)
    except CommitError as error:
        raise CommandError(str(error), UNCHANGED) from None


def print_patch(outcomes: Iterable[Outcome], folder: Path) -> None:
    """Print the changes as a patch, whose control characters are escaped on a terminal.

    As in git's own patches, paths are relative to the top of the work tree. Without git they are relative
    to the current folder, or to `folder` if that is outside the current folder.

    Args:
        outcomes: the rewritten files.
        folder: the folder that holds them all.
    """
    from devicefix.files.discover import work_tree

    here = Path.cwd()
    folder = folder.resolve()
    top = work_tree(folder) or (here if folder.is_relative_to(here) else folder)
    colour = click.get_current_context().color is not False
    for outcome in outcomes:
        if outcome.result.output is not None:
            name = os.path.relpath(os.path.realpath(outcome.path), top)
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


def print_findings(outcomes: Iterable[Outcome], quiet: bool, err: bool) -> None:
    """Print the fixed findings, unless `quiet`, and the remaining ones.

    Args:
        outcomes: the rewritten files.
        quiet: whether to leave out the fixed findings.
        err: whether to print to the standard error.
    """
    for outcome in outcomes:
        if not quiet:
            for finding in outcome.result.fixed:
                click.echo(concise.fixed(outcome.path, finding), err=err)
        for finding in outcome.result.remaining:
            click.echo(concise.remaining(outcome.path, finding), err=err)
