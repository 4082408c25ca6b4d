"""`devicefix rewrite`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from devicefix.cli.looking import complain, look, status, warn
from devicefix.cli.options import STDIN, Trouble, common, common_folder, settings_for, unsafe_option
from devicefix.cli.verify import limit_options
from devicefix.config.settings import Settings

if TYPE_CHECKING:
    from devicefix.files.write import Change
    from devicefix.model import Outcome


@click.command(short_help="Rewrite files, or print what would change.")
@common
@click.option("--in-place", "-i", is_flag=True, help="Write the files rather than print a patch.")
@click.option("--diff", is_flag=True, help="Print the patch, also with --in-place or -.")
@unsafe_option
@click.option(
    "--verify",
    "verification",
    metavar="COMMAND",
    help="With --in-place: run this first, as `devicefix verify -c`, and write only if it passes.",
)
@limit_options
@click.option(
    "--require-clean", is_flag=True, help="With --in-place: only write files that are committed in git."
)
@click.pass_context
def rewrite(
    ctx: click.Context,
    /,
    paths: tuple[Path, ...],
    config_file: Path | None,
    stdin_filename: str | None,
    in_place: bool,
    diff: bool,
    exit_zero: bool,
    verification: str | None,
    timeout: float,
    memory: int | None,
    steps: int | None,
    require_clean: bool,
    **given: Any,
) -> None:
    """Rewrite PATHS to run on any device: files, folders, or - for the standard input.

    Prints a patch for `git apply` and writes nothing, unless told --in-place. What comes from the
    standard input goes to the standard output.
    """
    from devicefix.report import totals

    if STDIN in paths and in_place:
        raise click.UsageError("the standard input (-) is no file to write --in-place")
    for option, wanted in (("--verify", verification is not None), ("--require-clean", require_clean)):
        if wanted and not in_place:
            raise click.UsageError(f"{option} goes with --in-place")
    settings = replace(settings_for(paths, config_file, stdin_filename, given), fix=True)
    outcomes, failed = look(paths, stdin_filename, settings)
    piped = STDIN in paths and not diff
    if piped:
        for outcome in outcomes:
            click.echo(outcome.result.output or outcome.before, nl=False)
    elif diff or not in_place:
        print_patch(outcomes, common_folder(paths))
    if in_place:
        warn_of(outcomes, require_clean)
    if in_place and verification is not None:
        written_if_verified(outcomes, verification, settings, (timeout, memory, steps))
    elif in_place:
        unwritten = write(outcomes)
        failed += len(unwritten)
        outcomes = [outcome for outcome in outcomes if outcome.path not in unwritten]
    if in_place or piped:
        tell(outcomes, settings, err=piped)
    results = [outcome.result for outcome in outcomes]
    if not settings.quiet:
        click.echo(totals.rewritten(results, failed, written=in_place or piped), err=not in_place)
    pending = not (in_place or piped) and any(result.output is not None for result in results)
    left = pending or any(result.remaining for result in results)
    ctx.exit(status(failed, left and not exit_zero))


def changes_of(outcomes: Iterable[Outcome]) -> list[Change]:
    """What is to be written."""
    from devicefix.files.write import Change

    return [
        Change(outcome.path, outcome.before, outcome.result.output)
        for outcome in outcomes
        if outcome.result.output is not None
    ]


def warn_of(outcomes: Iterable[Outcome], require_clean: bool) -> None:
    """Tell which files can't be had back from git, or end the program; and which have other names."""
    from devicefix.files import write as writing
    from devicefix.runner import worktree

    changes = changes_of(outcomes)
    dirty, outside = worktree.uncommitted(changes)
    if require_clean and (unsafe := dirty + outside):
        raise Trouble(f"nothing was written: {some(unsafe)} not committed in git (--require-clean)")
    if dirty:
        click.echo(f"Warning: {some(dirty)} not committed in git", err=True)
    for change in changes:
        if writing.other_names(change.path):
            warn(change.path, "it has other names (hard links), which keep the old content")


def some(paths: list[str]) -> str:
    """Some paths as the subject of a sentence."""
    from devicefix.report.wording import printable

    names = ", ".join(map(printable, paths[:3])) + (", …" if len(paths) > 3 else "")
    return f"{len(paths)} files ({names}) are" if len(paths) > 1 else f"1 file ({names}) is"


def write(outcomes: Iterable[Outcome]) -> set[str]:
    """Write the new sources of files; tell which can't be written, and return them."""
    from devicefix.files import write as writing

    unwritten: set[str] = set()

    def onerror(path: str, problem: OSError) -> None:
        complain(path, problem.strerror or str(problem))
        unwritten.add(path)

    writing.write_each(changes_of(outcomes), onerror)
    return unwritten


def written_if_verified(
    outcomes: Iterable[Outcome],
    command: str,
    settings: Settings,
    limits: tuple[float, int | None, int | None],
) -> None:
    """Write the new sources, all of them together, if a command passes with them; end the program if not.

    The command runs before anything is written, so that there is nothing to restore, whenever it ends.
    """
    from devicefix.cli.verify import STATUSES, perform_for, show
    from devicefix.files import commit

    changed = [outcome for outcome in outcomes if outcome.result.output is not None]
    if not changed:
        return
    try:
        report, passed = perform_for(changed, command, settings, *limits)
    except KeyboardInterrupt:
        click.echo("Interrupted. Nothing was written: all files are as they were.", err=True)
        raise
    show(report)
    if not passed:
        click.echo("Nothing was written: all files are as they were.")
        click.get_current_context().exit(STATUSES[report.verdict.value])
    try:
        commit.commit(changes_of(changed))
    except commit.CommitError as problem:
        raise Trouble(f"{problem}\nNothing was written: all files are as they were.") from None


def print_patch(outcomes: Iterable[Outcome], folder: Path) -> None:
    """Print what would change below a folder, as a patch.

    As in git's own patches, paths are relative to the top of the work tree, wherever in it the patch
    is made and applied. Without git they are relative to the current folder, and for files outside of
    it to `folder`.
    """
    from devicefix.files.discover import work_tree
    from devicefix.report import diff

    here = Path.cwd()
    folder = folder.resolve()
    top = work_tree(folder) or (here if folder.is_relative_to(here) else folder)
    colour = sys.stdout.isatty() and click.get_current_context().color is not False
    for outcome in outcomes:
        if outcome.result.output is not None:
            name = os.path.relpath(os.path.realpath(outcome.path), top)
            patch = diff.unified(name, outcome.before, outcome.result.output)
            click.echo(diff.coloured(patch) if colour else patch, nl=False)


def tell(outcomes: Iterable[Outcome], settings: Settings, err: bool) -> None:
    """Print what was fixed and what remains."""
    from devicefix.report import concise

    for outcome in outcomes:
        if not settings.quiet:
            for finding in outcome.result.fixed:
                click.echo(concise.fixed(outcome.path, finding), err=err)
        for finding in outcome.result.remaining:
            click.echo(concise.remaining(outcome.path, finding), err=err)
