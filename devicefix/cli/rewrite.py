"""`devicefix rewrite`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from devicefix.cli.changes import changes_of, check_changes, print_changes, write_all, write_changes
from devicefix.cli.errors import UNCHANGED, exit_status
from devicefix.cli.help import GroupedCommand
from devicefix.cli.inputs import check_paths
from devicefix.cli.options import STDIN, common_folder, common_options, resolver_for, unsafe_option
from devicefix.cli.verify import STATUSES, limit_options, show_report, verify_outcomes
from devicefix.report import concise
from devicefix.report.totals import Totals
from devicefix.verify.commands import Limits

if TYPE_CHECKING:
    from devicefix.config.resolver import Resolver
    from devicefix.model import Outcome


@click.command(
    cls=GroupedCommand,
    first=(
        "in-place", "unsafe-fixes", "verify", "require-clean", "select", "ignore", "exclude", "target",
    ),
    short_help="Print a patch with the fixes, or rewrite the files.",
)  # fmt: skip
@common_options
@click.option("--in-place", "-i", is_flag=True, help="Rewrite the files instead of printing a patch.")
@click.option("--diff", is_flag=True, help="Print the patch even with --in-place or standard input (-).")
@unsafe_option
@click.option(
    "--verify",
    "command",
    metavar="COMMAND",
    help="With --in-place: first run this command as `devicefix verify -c` does, and write the files only if"
    " it passes.",
)
@limit_options
@click.option(
    "--require-clean",
    is_flag=True,
    help="With --in-place: write nothing unless all files to rewrite are committed in git.",
)
@click.pass_context
def rewrite(
    ctx: click.Context,
    /,
    *,
    paths: tuple[Path, ...],
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
    """Rewrite the code in PATHS to also run without CUDA.

    PATHS are files or folders, or `-` for standard input. [default: the current folder]

    By default, this command prints a patch for `git apply`. For standard input, it prints the rewritten code.
    """
    _check_usage(paths, in_place, {"--verify": command is not None, "--require-clean": require_clean})
    resolver = resolver_for(paths, stdin_filename, given).changed(fix=True)
    settings = resolver.root
    checked = check_paths(paths, stdin_filename, resolver)
    outcomes, failed = list(checked.outcomes), len(checked.failed)
    piped = STDIN in paths and not diff
    if piped or diff or not in_place:
        print_changes(outcomes, None if piped else common_folder(paths))
    if in_place:
        changes = changes_of(outcomes)
        check_changes(changes, require_clean)
        unwritten = set()
        if command is None:
            unwritten = write_changes(changes)
        elif changes:
            verify_first(outcomes, command, resolver, Limits(timeout, memory), steps)
            write_all(changes)
        failed += len(unwritten)
        outcomes = [outcome for outcome in outcomes if outcome.path not in unwritten]
    if in_place or piped:
        print_findings(outcomes, resolver, err=piped)
    results = [outcome.result for outcome in outcomes]
    if not settings.quiet:
        totals = Totals.of(outcomes, failed, resolver)
        click.echo(totals.rewritten(in_place or piped, verified=command is not None), err=not in_place)
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
        raise click.UsageError("--in-place cannot be used with standard input (-)")
    for option, given in needing.items():
        if given and not in_place:
            raise click.UsageError(f"{option} needs --in-place")


def verify_first(
    outcomes: list[Outcome], command: str, resolver: Resolver, limits: Limits, steps: int | None
) -> None:
    """Run a command with the changes, and end the program if it does not pass.

    The command runs with the changes in memory, so that nothing has to be restored if it is interrupted.

    Args:
        outcomes: the rewritten files.
        command: a command line that starts Python.
        resolver: the settings of the rewrite.
        limits: the limits of the run.
        steps: after how many optimizer steps it ends, None for no limit.
    """
    report, passed = verify_outcomes(outcomes, command, resolver, limits, steps)
    show_report(report)
    if not passed:
        click.echo(UNCHANGED)
        click.get_current_context().exit(STATUSES[report.verdict.value])


def print_findings(outcomes: Sequence[Outcome], resolver: Resolver, err: bool) -> None:
    """Print the fixed findings, unless the settings are quiet, and then the remaining ones.

    Args:
        outcomes: the rewritten files.
        resolver: the settings of the run.
        err: whether to print to the standard error.
    """
    if not resolver.root.quiet:
        for outcome in outcomes:
            for finding in outcome.result.fixed:
                click.echo(concise.fixed(outcome.path, finding), err=err)
    for outcome in outcomes:
        unsafe = resolver.of(outcome.path).unsafe_fixes
        for finding in outcome.result.remaining:
            click.echo(concise.remaining(outcome.path, finding, finding.is_fixable(unsafe)), err=err)
