"""`devicefix migrate`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from devicefix.cli import options
from devicefix.cli.changes import check_changes, write_all
from devicefix.cli.errors import exit_status, missing_package, os_error
from devicefix.cli.help import GroupedCommand
from devicefix.cli.output import check_folder, write_file
from devicefix.cli.verify import check_packages, limit_options, progress

if TYPE_CHECKING:
    from devicefix.files.write import Change
    from devicefix.migrate.session import Migration

EPILOG = """\
`--run` runs your own program, with all its effects on networks and databases, in a copy of the project. Each
command must start Python or name a notebook, and runs several times.

Exit status: 0 if all commands pass, 1 if a command fails, 2 if an error occurs. Without --run: 0 if no
findings remain, 1 if findings remain, 2 if an error occurs.
"""


@click.command(
    cls=GroupedCommand,
    first=(
        "run", "in-place", "patch", "branch", "report", "timeout", "steps", "select", "exclude", "target",
    ),
    short_help="Rewrite a project, and run it to test the changes.",
    epilog=EPILOG,
)  # fmt: skip
@click.argument(
    "path", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="[PATH]"
)
@click.option(
    "--run",
    "commands",
    multiple=True,
    metavar="COMMAND",
    help="A command to run, such as `python train.py --epochs 1`. Can be repeated.",
)
@click.option("--in-place", "-i", is_flag=True, help="Change the files: either all of them or none.")
@click.option("--patch", type=options.FILE, help="Write the changes to this file as a patch for `git apply`.")
@click.option(
    "--branch", metavar="NAME", help="Commit the changes to a new git branch, without checking it out."
)
@click.option("--report", type=options.FILE, help="Also write the result to this file as an HTML page.")
@limit_options
@options.tolerance_option
@options.text_or_json
@options.color_option
@options.settings_options
@click.pass_context
def migrate(
    ctx: click.Context,
    /,
    *,
    path: Path,
    commands: tuple[str, ...],
    in_place: bool,
    patch: Path | None,
    branch: str | None,
    report: Path | None,
    timeout: float,
    memory: int | None,
    steps: int | None,
    tolerance: float,
    report_format: str,
    **given: Any,
) -> None:
    """Rewrite the project in PATH, and keep the unsafe fixes that its runs justify.

    devicefix runs each --run command on the CPU and on a simulated CUDA machine. By default, it keeps an
    unsafe fix only if the fixed code is executed and both runs produce the same numbers. To keep the changes,
    use one or more of --in-place, --patch and --branch.
    """
    check_packages("migrate", "psutil")
    from devicefix.migrate import branches, page, session
    from devicefix.migrate.proof import Display
    from devicefix.verify.commands import Limits

    for file in filter(None, (patch, report)):
        check_folder(file)
    render = None if report is None else _html()
    on = {name: True for name in ("config_files", "environment") if given[name] is None}
    resolver = options.resolver_for([path], None, given | on)
    limits = Limits(timeout, memory)
    request = session.Request(path, commands, limits, steps, tolerance)
    if branch is not None:
        branches.check(path, branch)
        request = replace(request, check=branches.check_committed)
    quiet = resolver.root.quiet

    def say(step: str) -> None:
        if not quiet:
            click.echo(f"devicefix: {step}", err=True)

    try:
        done = session.migrate(request, resolver.changed(quiet=True), Display(progress(), say))
    except OSError as error:
        raise os_error(error.filename or path, error) from None
    click.echo(page.as_json(done) if report_format == "json" else page.text(done), nl=False)
    if report is not None and render is not None:
        write_file(report, render(done).encode(errors="replace"))
    _write(done, in_place, patch, branch)
    if report_format == "text" and not quiet:
        click.echo(_written(bool(done.changes), in_place, patch, branch, report))
    findings = not done.runs if done.reports else bool(done.left)
    ctx.exit(exit_status(len(done.failed), findings))


def _html() -> Callable[[Migration], str]:
    """Return what makes the page.

    Raises:
        CommandError: a package that it needs is not installed.
    """
    try:
        from devicefix.migrate.html import html
    except ImportError as error:
        raise missing_package("--report", error.name, "report") from None
    return html


def _write(done: Migration, in_place: bool, patch: Path | None, branch: str | None) -> None:
    """Write the changes where they are wanted.

    Raises:
        CommandError: they cannot be written; everything is as it was.
    """
    if patch is not None:
        write_file(patch, _patch(done.changes, done.look.root))
    if branch is not None:
        from devicefix.migrate import branches

        branches.make(done, branch)
    if in_place and done.changes:
        check_changes(done.changes, require_clean=False)
        write_all(done.changes)


def _patch(changes: Iterable[Change], root: Path) -> bytes:
    from devicefix.files.discover import work_tree
    from devicefix.files.system import relative
    from devicefix.report.diff import unified

    top = work_tree(root) or root
    named = ((relative(os.path.realpath(change.path), top), change) for change in changes)
    return b"".join(unified(name, change.before, change.after) for name, change in named)


def _written(
    changes: bool, in_place: bool, patch: Path | None, branch: str | None, report: Path | None
) -> str:
    said = f"The report was written to {report}. " if report else ""
    if not changes:
        return f"{said}There are no changes to write."
    to = [f"to {patch}"] if patch else []
    to += [f"to the branch {branch}"] if branch else []
    to += ["in place"] if in_place else []
    if not to:
        advice = "To keep them, add --in-place, --patch FILE or --branch NAME."
        return f"{said}The changes were not written. {advice}"
    review = f" To review them, run `git diff HEAD {branch}`." if branch else ""
    numbers = " All line numbers refer to the original files." if in_place or branch else ""
    return f"{said}The changes were written {' and '.join(to)}.{review}{numbers}"
