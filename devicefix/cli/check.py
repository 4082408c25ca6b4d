"""`devicefix check`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from devicefix.cli import baseline, noqa
from devicefix.cli.changes import changes_of, check_changes, print_bytes, print_patch, write_changes
from devicefix.cli.config import in_force, show
from devicefix.cli.diff_base import changes_since, diff_base_option, hide_unchanged
from devicefix.cli.errors import exit_status
from devicefix.cli.help import GroupedCommand
from devicefix.cli.inputs import check_paths, listed
from devicefix.cli.options import (
    STDIN,
    Source,
    adoption_options,
    common_folder,
    common_options,
    executor_option,
    output_options,
    resolver_for,
    unsafe_option,
)
from devicefix.cli.output import Output
from devicefix.config.printable import printable_path
from devicefix.config.resolver import Nearest, Resolver
from devicefix.config.settings import Settings
from devicefix.report.totals import Totals

if TYPE_CHECKING:
    from devicefix.model import Outcome

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Fixing:
    """The options about fixes.

    Attributes:
        fix: whether to make the fixes and report what remains.
        fix_only: whether to make the fixes only.
        diff: whether to show the fixes only.
        exit_non_zero_on_fix: whether the exit status is 1, too, if something was fixed.
    """

    fix: bool
    fix_only: bool
    diff: bool
    exit_non_zero_on_fix: bool

    @property
    def option(self) -> str | None:
        """The option that makes or shows fixes; None if there is none."""
        given = {"--diff": self.diff, "--fix-only": self.fix_only, "--fix": self.fix}
        return next((name for name, is_given in given.items() if is_given), None)


def fix_options(command: Command) -> Command:
    """Add the options about fixes."""
    command = click.option(
        "--exit-non-zero-on-fix",
        is_flag=True,
        help="Exit with status 1 if anything was fixed, even if no findings remain.",
    )(command)
    command = click.option("--watch", "-w", is_flag=True, help="Check again whenever files change.")(command)
    command = click.option(
        "--diff",
        is_flag=True,
        help="Show the fixes as a diff instead of applying them, and exit with status 1 if there are any.",
    )(command)
    command = click.option(
        "--fix-only",
        is_flag=True,
        help="Apply fixes, but do not report remaining findings or exit non-zero for them.",
    )(command)
    command = unsafe_option(command)
    return click.option(
        "--fix",
        is_flag=True,
        help="Apply fixes, like `rewrite --in-place`, and report the remaining findings.",
    )(command)


@click.command(cls=GroupedCommand, short_help="Find code that is tied to CUDA.")
@fix_options
@common_options
@click.option("--show-files", is_flag=True, help="List the files that would be checked, and exit.")
@click.option(
    "--show-settings",
    is_flag=True,
    help="Show the settings for the first file that would be checked, and exit.",
)
@output_options
@adoption_options
@diff_base_option
@executor_option
@click.pass_context
def check(
    ctx: click.Context,
    /,
    *,
    paths: tuple[Path, ...],
    configs: tuple[str, ...],
    isolated: bool,
    stdin_filename: str | None,
    exit_zero: bool,
    output_file: Path | None,
    unfixed: bool,
    statistics: bool,
    group_by: str | None,
    write_baseline: bool,
    add_noqa: bool,
    diff_base: str | None,
    watch: bool,
    show_files: bool,
    show_settings: bool,
    fix: bool,
    fix_only: bool,
    diff: bool,
    exit_non_zero_on_fix: bool,
    **given: Any,
) -> None:
    """Find the ties to CUDA in PATHS.

    PATHS are files or folders, or `-` for standard input. [default: the current folder]

    In the output, [*] marks the findings that --fix would fix.
    """
    fixing = Fixing(fix, fix_only, diff, exit_non_zero_on_fix)
    kind = fixing.option or ("--write-baseline" if write_baseline else "--add-noqa" if add_noqa else None)

    def configured() -> Resolver:
        return resolver_for(paths, stdin_filename, configs, isolated, given)

    def report(resolver: Resolver) -> int:
        output = Output.of(resolver.root, output_file, group_by or ("rule" if statistics else None))
        if fixing.option is not None:
            return _fix(fixing, paths, stdin_filename, resolver, output, exit_zero)
        if kind is None:
            resolver = resolver.changed(replacements=output.needs_fixes)
        changes = changes_since(diff_base, paths, stdin_filename)
        checked = check_paths(paths, stdin_filename, resolver)
        failed = len(checked.failed)
        if write_baseline:
            baseline.write(checked, paths)
            return exit_status(failed, findings=False)
        checked = hide_unchanged(baseline.hide_known(checked, paths), changes)
        totals = Totals.of(checked.outcomes, failed, resolver)
        if unfixed:
            checked = checked.unfixed()
            totals = Totals.of(checked.outcomes, failed, resolver).hiding(totals)
        if add_noqa:
            return exit_status(failed, noqa.add(checked) and not exit_zero)
        output.print(checked, totals)
        return exit_status(failed, bool(totals.remaining) and not exit_zero)

    resolver = configured()
    if show_files or show_settings:
        source = Source.of(configs, isolated, given) if show_settings else None
        _show(ctx, listed(paths, stdin_filename, resolver), source)
        return
    _check_usage(paths, resolver.root, fixing, kind, write_baseline, add_noqa, unfixed, diff_base)
    if watch:
        from devicefix.cli.watch import watch_paths

        watch_paths(paths, kind, resolver, lambda: report(configured()))
    ctx.exit(report(resolver))


def _show(ctx: click.Context, files: list[Path], source: Source | None) -> None:
    """Print the files to check, or the settings of the first one.

    Args:
        ctx: the command.
        files: the files.
        source: the sources of the settings; None to print the files.
    """
    if source is None:
        click.echo("".join(f"{printable_path(str(file))}\n" for file in files), nl=False)
    elif files:
        file = Nearest(source.settings, files[0].parent, source.find_in).file
        click.echo(f"# settings for: {printable_path(str(files[0]))}")
        show(file, list(in_force(ctx, file, source)))


def _fix(
    fixing: Fixing,
    paths: tuple[Path, ...],
    stdin_filename: str | None,
    resolver: Resolver,
    output: Output,
    exit_zero: bool,
) -> int:
    """Make or show the fixes, as `devicefix rewrite` does, and return the exit status."""
    reports = not (fixing.diff or fixing.fix_only)
    resolver = resolver.changed(fix=True, replacements=reports and output.needs_fixes)
    checked = check_paths(paths, stdin_filename, resolver)
    outcomes, failed = list(checked.outcomes), len(checked.failed)
    piped = STDIN in paths
    if fixing.diff:
        print_patch(outcomes, common_folder(paths))
    elif piped:
        for outcome in outcomes:
            print_bytes(outcome.result.output or outcome.before)
    else:
        changes = changes_of(outcomes)
        check_changes(changes, require_clean=False)
        unwritten = write_changes(changes)
        outcomes = [outcome for outcome in outcomes if outcome.path not in unwritten]
        failed += len(unwritten)
    left = replace(checked, outcomes=list(map(_after, outcomes)))
    if reports:
        left = baseline.hide_known(left, paths)
    totals = Totals.of(left.outcomes, failed, resolver)
    if reports:
        output.print(left, totals, err=piped)
    elif not resolver.root.quiet:
        click.echo(totals.only_fixed(written=not fixing.diff), err=fixing.diff or piped)
    counted = totals.remaining if reports else 0
    if fixing.diff or fixing.exit_non_zero_on_fix:
        counted += totals.fixed
    return exit_status(failed, bool(counted) and not exit_zero)


def _after(outcome: Outcome) -> Outcome:
    """Return the outcome of a check after the fixes: its findings are those that remain."""
    result = outcome.result
    content = outcome.before if result.output is None else result.output
    return replace(outcome, before=content, result=replace(result, findings=result.remaining))


def _check_usage(
    paths: tuple[Path, ...],
    settings: Settings,
    fixing: Fixing,
    kind: str | None,
    write_baseline: bool,
    add_noqa: bool,
    unfixed: bool,
    diff_base: str | None,
) -> None:
    """Refuse options that cannot be used together.

    Raises:
        UsageError: two of the options contradict each other.
    """
    if add_noqa and STDIN in paths:
        raise click.UsageError("--add-noqa cannot be used with standard input (-)")
    given = {"--add-noqa": add_noqa, "--write-baseline": write_baseline}
    for option, is_given in given.items():
        if is_given and option != kind:
            raise click.UsageError(f"{option} and {kind} cannot be used together")
    if fixing.option and diff_base:
        raise click.UsageError(
            f"{fixing.option} cannot be used with --diff-base, because fixes apply to whole files"
        )
    if unfixed and (fixing.option or write_baseline):
        raise click.UsageError(f"--unfixed and {kind} cannot be used together")
    if write_baseline and settings.baseline is None:
        raise click.UsageError("--write-baseline needs --baseline FILE or the `baseline` key")
    if write_baseline and diff_base:
        raise click.UsageError(
            "--write-baseline cannot be used with --diff-base, because a baseline contains all findings"
        )
