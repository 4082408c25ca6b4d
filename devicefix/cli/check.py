"""`devicefix check`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from devicefix.cli import baseline, noqa
from devicefix.cli.changes import changes_of, check_changes, print_bytes, print_patch, write_changes
from devicefix.cli.diff_base import changes_since, diff_base_option, hide_unchanged
from devicefix.cli.errors import exit_status
from devicefix.cli.inputs import check_paths
from devicefix.cli.options import (
    STDIN,
    adoption_options,
    common_folder,
    common_options,
    executor_option,
    output_options,
    settings_for,
    unsafe_option,
)
from devicefix.cli.output import Output
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
        "--diff", is_flag=True, help="Show the fixes as a diff, and exit with status 1 if there are any."
    )(command)
    command = click.option(
        "--fix-only", is_flag=True, help="Apply fixes, but do not report or exit non-zero for what remains."
    )(command)
    command = unsafe_option(command)
    return click.option(
        "--fix", is_flag=True, help="Apply fixes, as `rewrite --in-place` does, and report what remains."
    )(command)


@click.command(short_help="Find the ties to CUDA in files.")
@fix_options
@common_options
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
    config_file: Path | None,
    stdin_filename: str | None,
    exit_zero: bool,
    output_file: Path | None,
    statistics: bool,
    write_baseline: bool,
    add_noqa: bool,
    diff_base: str | None,
    watch: bool,
    fix: bool,
    fix_only: bool,
    diff: bool,
    exit_non_zero_on_fix: bool,
    **given: Any,
) -> None:
    """Find the ties to CUDA in PATHS: files, folders, or - for the standard input.

    Prints each finding, with [*] if --fix would fix it.
    """
    fixing = Fixing(fix, fix_only, diff, exit_non_zero_on_fix)
    kind = fixing.option or ("--write-baseline" if write_baseline else "--add-noqa" if add_noqa else None)

    def configured() -> Settings:
        return settings_for(paths, config_file, stdin_filename, dict(given))

    def report(settings: Settings) -> int:
        output = Output.of(settings, output_file, statistics)
        if fixing.option is not None:
            return _fix(fixing, paths, stdin_filename, settings, output, exit_zero)
        if kind is None:
            settings = replace(settings, replacements=output.needs_fixes)
        changes = changes_since(diff_base, paths, stdin_filename)
        checked = check_paths(paths, stdin_filename, settings)
        failed = len(checked.failed)
        if write_baseline:
            baseline.write(checked, paths)
            return exit_status(failed, findings=False)
        checked = hide_unchanged(baseline.hide_known(checked, paths), changes)
        if add_noqa:
            return exit_status(failed, noqa.add(checked) and not exit_zero)
        totals = Totals.of([outcome.result for outcome in checked.outcomes], failed, settings.unsafe_fixes)
        output.print(checked, totals)
        return exit_status(failed, bool(totals.remaining) and not exit_zero)

    settings = configured()
    _check_usage(paths, settings, fixing, kind, write_baseline, add_noqa, diff_base)
    if watch:
        from devicefix.cli.watch import watch_paths

        watch_paths(paths, kind, settings, lambda: report(configured()))
    ctx.exit(report(settings))


def _fix(
    fixing: Fixing,
    paths: tuple[Path, ...],
    stdin_filename: str | None,
    settings: Settings,
    output: Output,
    exit_zero: bool,
) -> int:
    """Make or show the fixes, as `devicefix rewrite` does, and return the exit status."""
    reports = not (fixing.diff or fixing.fix_only)
    settings = replace(settings, fix=True, replacements=reports and output.needs_fixes)
    checked = check_paths(paths, stdin_filename, settings)
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
    totals = Totals.of([outcome.result for outcome in left.outcomes], failed, settings.unsafe_fixes)
    if reports:
        output.print(left, totals, err=piped)
    elif not settings.quiet:
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
    diff_base: str | None,
) -> None:
    """Refuse options that cannot be used together.

    Raises:
        UsageError: two of the options contradict each other.
    """
    if add_noqa and STDIN in paths:
        raise click.UsageError("--add-noqa cannot write to the standard input (-)")
    given = {"--add-noqa": add_noqa, "--write-baseline": write_baseline}
    for option, is_given in given.items():
        if is_given and option != kind:
            raise click.UsageError(f"{option} and {kind} cannot be used together")
    if fixing.option and diff_base:
        raise click.UsageError(f"{fixing.option} cannot be used with --diff-base: it fixes whole files")
    if write_baseline and settings.baseline is None:
        raise click.UsageError("--write-baseline needs --baseline FILE or the key `baseline`")
    if write_baseline and diff_base:
        raise click.UsageError("--write-baseline cannot be used with --diff-base: it writes all findings")
