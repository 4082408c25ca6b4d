"""`devicefix check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from devicefix.cli.looking import look, status
from devicefix.cli.options import common, settings_for


@click.command(short_help="Find the ties to CUDA in files.")
@common
@click.pass_context
def check(
    ctx: click.Context,
    /,
    paths: tuple[Path, ...],
    config_file: Path | None,
    stdin_filename: str | None,
    exit_zero: bool,
    **given: Any,
) -> None:
    """Find the ties to CUDA in PATHS: files, folders, or - for the standard input.

    Prints a line for each finding, with [*] where a safe fix exists.
    """
    from devicefix.report import concise, summary

    settings = settings_for(paths, config_file, stdin_filename, given)
    outcomes, failed = look(paths, stdin_filename, settings)
    results = [outcome.result for outcome in outcomes]
    for result in results:
        for finding in result.findings:
            click.echo(concise.line(result.path, finding))
    if not settings.quiet:
        click.echo(summary.checked(results, failed))
    ctx.exit(status(failed, not exit_zero and any(result.findings for result in results)))
