"""`devicefix check`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from devicefix.cli import baseline, noqa
from devicefix.cli.diff_base import changes_since, diff_base_option, hide_unchanged
from devicefix.cli.errors import exit_status
from devicefix.cli.inputs import check_paths
from devicefix.cli.options import (
    STDIN,
    adoption_options,
    common_options,
    executor_option,
    output_options,
    settings_for,
)
from devicefix.cli.output import Output
from devicefix.config.settings import Settings

# Options of ruff's `check`, and their equivalents.
ELSEWHERE = {
    "--fix": "rewrite --in-place",
    "--diff": "rewrite --diff",
    "--unsafe-fixes": "rewrite --unsafe-fixes",
}


def _point_elsewhere(_ctx: click.Context, option: click.Parameter, given: bool) -> None:
    """Name the command that has the option."""
    if given:
        raise click.UsageError(f"`check` does not fix; use `devicefix {ELSEWHERE[option.opts[0]]}`")


def elsewhere_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the options that users of ruff expect, each of which names the command that has it."""
    for name in ELSEWHERE:
        hidden = click.option(name, is_flag=True, hidden=True, expose_value=False, callback=_point_elsewhere)
        command = hidden(command)
    return command


@click.command(short_help="Find the ties to CUDA in files.")
@common_options
@output_options
@adoption_options
@diff_base_option
@executor_option
@elsewhere_options
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
    **given: Any,
) -> None:
    """Find the ties to CUDA in PATHS: files, folders, or - for the standard input.

    Prints each finding, with [*] if it has a safe fix.
    """
    settings = settings_for(paths, config_file, stdin_filename, given)
    _check_usage(paths, settings, write_baseline, add_noqa, diff_base)
    output = Output.of(settings, output_file, statistics)
    if not (write_baseline or add_noqa):
        settings = replace(settings, replacements=output.needs_fixes)
    changes = changes_since(diff_base, paths, stdin_filename)
    checked = check_paths(paths, stdin_filename, settings)
    failed = len(checked.failed)
    if write_baseline:
        baseline.write(checked, paths)
        ctx.exit(exit_status(failed, findings=False))
    checked = hide_unchanged(baseline.hide_known(checked, paths), changes)
    if add_noqa:
        remaining = noqa.add(checked)
    else:
        output.print(checked)
        remaining = any(outcome.result.findings for outcome in checked.outcomes)
    ctx.exit(exit_status(failed, remaining and not exit_zero))


def _check_usage(
    paths: tuple[Path, ...], settings: Settings, write_baseline: bool, add_noqa: bool, diff_base: str | None
) -> None:
    """Refuse options that cannot be used together.

    Raises:
        UsageError: two of the options contradict each other.
    """
    if add_noqa and STDIN in paths:
        raise click.UsageError("--add-noqa cannot write to the standard input (-)")
    if add_noqa and write_baseline:
        raise click.UsageError("--add-noqa and --write-baseline cannot be used together")
    if write_baseline and settings.baseline is None:
        raise click.UsageError("--write-baseline needs --baseline FILE or the key `baseline`")
    if write_baseline and diff_base:
        raise click.UsageError("--write-baseline cannot be used with --diff-base: it writes all findings")
