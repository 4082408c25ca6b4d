"""`devicefix check`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from devicefix.cli import adopting
from devicefix.cli.diff_base import diff_base_option, limited, since
from devicefix.cli.looking import status, survey
from devicefix.cli.options import (
    STDIN,
    adopting_options,
    common,
    executor_option,
    output_options,
    settings_for,
)
from devicefix.cli.output import Output

# What ruff's `check` has, and where it is here.
ELSEWHERE = {
    "--fix": "rewrite --in-place",
    "--diff": "rewrite --diff",
    "--unsafe-fixes": "rewrite --unsafe-fixes",
}


def point_elsewhere(ctx: click.Context, option: click.Parameter, given: bool) -> None:
    """Say which command has the option."""
    if given:
        raise click.UsageError(f"check fixes nothing: use `devicefix {ELSEWHERE[option.opts[0]]}`")


def elsewhere_options(command: click.decorators.FC) -> click.decorators.FC:
    """The options that a user of ruff looks for, and that another command has."""
    for name in ELSEWHERE:
        hidden = click.option(name, is_flag=True, hidden=True, expose_value=False, callback=point_elsewhere)
        command = hidden(command)
    return command


@click.command(short_help="Find the ties to CUDA in files.")
@common
@output_options
@adopting_options
@diff_base_option
@executor_option
@elsewhere_options
@click.pass_context
def check(
    ctx: click.Context,
    /,
    paths: tuple[Path, ...],
    config_file: Path | None,
    stdin_filename: str | None,
    exit_zero: bool,
    output_file: Path | None,
    statistics: bool,
    write_baseline: bool,
    add_noqa: bool,
    diff_base: str | None,
    **given: Any,
) -> None:
    """Find the ties to CUDA in PATHS: files, folders, or - for the standard input.

    Prints each finding, with [*] where a safe fix exists.
    """
    from devicefix.report.checked import Checked

    if STDIN in paths and add_noqa:
        raise click.UsageError("the standard input (-) is no file for --add-noqa to write")
    if write_baseline and add_noqa:
        raise click.UsageError("--write-baseline and --add-noqa are two ways to the same end: choose one")
    settings = settings_for(paths, config_file, stdin_filename, given)
    if write_baseline and settings.baseline is None:
        raise click.UsageError("--write-baseline goes with --baseline FILE, or the key `baseline`")
    if write_baseline and diff_base:
        raise click.UsageError("--write-baseline keeps all that is found: it does not go with --diff-base")
    output = Output.of(settings, output_file, statistics)
    if not (write_baseline or add_noqa):
        settings = replace(settings, replacements=output.needs_fixes)
    changes = since(diff_base, paths, stdin_filename)
    outcomes, failed = survey(paths, stdin_filename, settings)
    if write_baseline:
        adopting.write_baseline(outcomes, paths, settings)
        ctx.exit(status(len(failed), False))
    outcomes = limited(adopting.new(outcomes, paths, settings), changes)
    if add_noqa:
        ctx.exit(status(len(failed), adopting.add_noqa(outcomes, settings) and not exit_zero))
    output.tell(Checked(outcomes, failed, settings))
    ctx.exit(status(len(failed), not exit_zero and any(each.result.findings for each in outcomes)))
