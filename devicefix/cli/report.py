"""`devicefix report`."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from devicefix.cli.errors import exit_status, missing_package, print_warning
from devicefix.cli.help import GroupedCommand
from devicefix.cli.inputs import check_paths
from devicefix.cli.options import FILE, STDIN, common_folder, common_options, resolver_for
from devicefix.cli.output import check_default, check_folder, write_file
from devicefix.config.printable import printable
from devicefix.files.write import Change
from devicefix.report.wording import count

if TYPE_CHECKING:
    from devicefix.files.owners import Owners
    from devicefix.report.checked import Checked
    from devicefix.report.migration import About, Migration

NAME = "devicefix-report"
FORMATS = ("html", "json", "csv")


@click.command(
    cls=GroupedCommand,
    first=(
        "output", "output-format", "since", "coverage-file", "title", "select", "ignore", "exclude", "target",
    ),
    short_help="Write a migration report.",
)  # fmt: skip
@common_options
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help=f"The file to write, or `-` for standard output. [default: {NAME}.FORMAT]",
)
@click.option(
    "--output-format",
    type=click.Choice(FORMATS),
    help="The report format. [default: based on the output file's extension, else html]",
)
@click.option("--since", type=FILE, help="Compare with an earlier JSON report.")
@click.option(
    "--coverage-file",
    type=FILE,
    help="Show which fixes ran, as recorded in this file by `devicefix verify --coverage-file`.",
)
@click.option("--title", help="The title of the HTML or JSON report. [default: the folder's name]")
@click.option("--timestamp", is_flag=True, help="Include the creation time in the HTML or JSON report.")
@click.pass_context
def report(
    ctx: click.Context,
    /,
    *,
    paths: tuple[Path, ...],
    stdin_filename: str | None,
    exit_zero: bool,  # noqa: ARG001 (findings never change the exit status)
    output: Path | None,
    output_format: str | None,
    since: Path | None,
    coverage_file: Path | None,
    title: str | None,
    timestamp: bool,
    **given: Any,
) -> None:
    """Write a migration report that shows the findings in PATHS, and which of them devicefix can fix.

    PATHS are files or folders, or `-` for standard input. [default: the current folder]

    By default, the report is a single HTML file that needs no server or network connection. The exit status
    is 0 even if there are findings.
    """
    from devicefix.files.discover import root_of
    from devicefix.report import earlier
    from devicefix.report.migration import About, migration
    from devicefix.runner.coverage import Coverage

    suffix = output.suffix.lower().removeprefix(".") if output else ""
    shown_as = output_format or (suffix if suffix in FORMATS else FORMATS[0])
    render = _renderer(shown_as)
    if output is None:
        output = Path(f"{NAME}.{shown_as}")
        check_default(output)
    elif output != STDIN:
        check_folder(output)
    coverage = None if coverage_file is None else Coverage(coverage_file)
    before = None if since is None else earlier.read(since)
    resolver = resolver_for(paths, stdin_filename, given).changed(replacements=True)
    settings = resolver.root
    checked = check_paths(paths, stdin_filename, resolver)
    folder = common_folder(paths)
    made = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC") if timestamp else ""
    about = About(title or folder.resolve().name, _revision(folder, checked), made)
    root = root_of(folder)
    figures = migration(checked, coverage, root, _owners(root), before)
    page = render(figures, about).encode(errors="replace")
    if coverage is not None and coverage.changed and not settings.quiet:
        changed, shown = count(len(coverage.changed), "file"), printable(str(coverage_file))
        click.echo(f"{changed} changed since the runs in {shown}: run `devicefix verify` again.", err=True)
    if output == STDIN:
        click.echo(page, nl=False)
    else:
        write_file(output, page)
        if not settings.quiet:
            total = figures.since.total if figures.since else None
            changed = f": {count(total.fixed, 'finding')} fixed, {total.new:,} new" if total else ""
            click.echo(f"Wrote the report to {printable(str(output))}{changed}")
    ctx.exit(exit_status(len(checked.failed), findings=False))


def _renderer(name: str) -> Callable[[Migration, About], str]:
    """Return what writes a format.

    Raises:
        CommandError: a package that it needs is not installed.
    """
    from devicefix.report import migration_data

    if name == "json":
        return migration_data.to_json
    if name == "csv":
        return lambda figures, _: migration_data.to_csv(figures)
    try:
        from devicefix.report import migration_page
    except ImportError as error:
        raise missing_package("report", error.name, "report") from None
    return migration_page.html


def _owners(root: Path) -> Owners | None:
    """Return the owners of the files below a folder, and warn if they cannot be read."""
    from devicefix.files import owners

    try:
        return owners.read(root)
    except OSError as error:
        print_warning(str(error.filename or root), f"{error.strerror or error}; the report shows no owners")
        return None


def _revision(folder: Path, checked: Checked) -> str:
    """Return the commit of the checked code, and whether files with findings differ from it."""
    from devicefix.files.discover import git
    from devicefix.runner import worktree

    head = git(os.fspath(folder), "rev-parse", "--short=12", "HEAD")
    if head is None:
        return ""
    files = (file for file in checked.files if os.path.exists(file.path))
    changed, _ = worktree.uncommitted(Change(file.path, file.data, file.data) for file in files)
    return head.decode().strip() + (", with uncommitted changes" if changed else "")
