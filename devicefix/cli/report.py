"""`devicefix report`."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from devicefix.cli.errors import exit_status, missing_package
from devicefix.cli.inputs import check_paths
from devicefix.cli.options import STDIN, common_folder, common_options, settings_for
from devicefix.cli.output import check_default, check_folder, write_file
from devicefix.config.printable import printable
from devicefix.files.write import Change
from devicefix.report.wording import count

if TYPE_CHECKING:
    from devicefix.report.checked import Checked

DEFAULT_OUTPUT = Path("devicefix-report.html")


@click.command(short_help="Write a migration report.")
@common_options
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=DEFAULT_OUTPUT,
    show_default=True,
    help="The file to write; - for the standard output.",
)
@click.option(
    "--coverage-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Show which fixes ran, from a file of `devicefix verify --coverage-file`.",
)
@click.option("--title", help="The title of the page. [default: the name of the folder]")
@click.option("--timestamp", is_flag=True, help="Show on the page when it was written.")
@click.pass_context
def report(
    ctx: click.Context,
    /,
    *,
    paths: tuple[Path, ...],
    config_file: Path | None,
    stdin_filename: str | None,
    exit_zero: bool,  # noqa: ARG001 (findings never change the exit status)
    output: Path,
    coverage_file: Path | None,
    title: str | None,
    timestamp: bool,
    **given: Any,
) -> None:
    """Write a migration report about PATHS: the ties to CUDA, and which of them a rewrite fixes.

    The report is one HTML file that needs no network and no server. The exit status is 0 even if there are
    findings.
    """
    try:
        from devicefix.report import migration_page
    except ImportError as error:
        raise missing_package("report", error.name, "report") from None
    from devicefix.report.migration import migration
    from devicefix.runner.coverage import Coverage

    if ctx.get_parameter_source("output") is ParameterSource.DEFAULT:
        check_default(output)
    elif output != STDIN:
        check_folder(output)
    coverage = None if coverage_file is None else Coverage(coverage_file)
    settings = replace(settings_for(paths, config_file, stdin_filename, given), replacements=True)
    checked = check_paths(paths, stdin_filename, settings)
    folder = common_folder(paths)
    about = migration_page.About(
        title or folder.resolve().name, _revision(folder, checked), _now() if timestamp else ""
    )
    page = migration_page.html(migration(checked, coverage), about).encode()
    if coverage is not None and coverage.changed and not settings.quiet:
        changed, shown = count(len(coverage.changed), "file"), printable(str(coverage_file))
        click.echo(f"{changed} changed since the runs in {shown}: run `devicefix verify` again.", err=True)
    if output == STDIN:
        click.echo(page, nl=False)
    else:
        write_file(output, page)
        if not settings.quiet:
            click.echo(f"Wrote the report to {printable(str(output))}")
    ctx.exit(exit_status(len(checked.failed), findings=False))


def _revision(folder: Path, checked: Checked) -> str:
    """Return the commit of the checked code, and whether files with findings differ from it."""
    from devicefix.files.discover import git
    from devicefix.runner import worktree

    head = git(os.fspath(folder), "rev-parse", "--short=12", "HEAD")
    if head is None:
        return ""
    contents = (
        Change(file.path, file.data, file.data) for file in checked.files if os.path.exists(file.path)
    )
    changed, _ = worktree.uncommitted(contents)
    return head.decode().strip() + (", with uncommitted changes" if changed else "")


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
