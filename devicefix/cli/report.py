"""`devicefix report`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from devicefix.cli.looking import status, survey
from devicefix.cli.options import STDIN, Trouble, common, common_folder, settings_for

if TYPE_CHECKING:
    from devicefix.report.checked import Checked

BY_DEFAULT = Path("devicefix-report.html")


@click.command(short_help="Write a page about what a migration has before it.")
@common
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=BY_DEFAULT,
    show_default=True,
    help="The page to write; - for the standard output.",
)
@click.option("--title", help="The title of the page; by default the name of the folder.")
@click.option("--timestamp", is_flag=True, help="Say on the page when it was made.")
@click.pass_context
def report(
    ctx: click.Context,
    /,
    paths: tuple[Path, ...],
    config_file: Path | None,
    stdin_filename: str | None,
    exit_zero: bool,
    output: Path,
    title: str | None,
    timestamp: bool,
    **given: Any,
) -> None:
    """Write an HTML page about the ties to CUDA in PATHS: how many, where, what a rewrite would fix.

    The page needs no network and no server. The exit status is 0 also when there are findings.
    """
    try:
        from devicefix.report import migration_page as page
    except ImportError as problem:
        raise Trouble(f"report needs {problem.name}: pip install 'devicefix[report]'") from None
    from devicefix.report.checked import Checked
    from devicefix.report.migration import migration

    if output != STDIN and not output.parent.is_dir():
        raise Trouble(f"{output}: there is no folder {str(output.parent)!r}")
    settings = replace(settings_for(paths, config_file, stdin_filename, given), replacements=True)
    outcomes, failed = survey(paths, stdin_filename, settings)
    checked = Checked(outcomes, failed, settings)
    about = page.About(
        title or common_folder(paths).resolve().name,
        _revision(common_folder(paths), checked),
        _now() if timestamp else "",
    )
    data = page.html(migration(checked), about).encode()
    if output == STDIN:
        click.echo(data, nl=False)
    else:
        _write(output, data)
        if not settings.quiet:
            click.echo(f"Wrote the report to {output}")
    ctx.exit(status(len(failed), findings=False))


def _revision(folder: Path, checked: Checked) -> str:
    """Return the commit of the checked code, and whether files with findings differ from it."""
    from devicefix.files import discover as files
    from devicefix.files.write import Change
    from devicefix.runner import worktree

    head = files.git(os.fspath(folder), "rev-parse", "--short=12", "HEAD")
    if head is None:
        return ""
    kept = (Change(file.path, file.data, file.data) for file in checked.files if os.path.exists(file.path))
    changed, _ = worktree.uncommitted(kept)
    return head.decode().strip() + (", with uncommitted changes" if changed else "")


def _now() -> str:
    from datetime import datetime, timezone

    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def _write(output: Path, data: bytes) -> None:
    from devicefix.files import write as writing

    try:
        writing.put(os.fspath(output), data)
    except OSError as problem:
        raise Trouble(f"{output}: {problem.strerror or problem}") from None
