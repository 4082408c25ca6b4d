"""Where and how `devicefix check` writes its findings."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from devicefix.cli.errors import CommandError, missing_package, os_error
from devicefix.cli.options import STDIN
from devicefix.config.settings import Settings
from devicefix.files import write as files
from devicefix.report import FORMATS, Format, Renderer

if TYPE_CHECKING:
    from devicefix.report.checked import Checked
    from devicefix.report.totals import Totals


class Output(NamedTuple):
    """The output of a run.

    Attributes:
        format: the output format.
        render: makes the text.
        file: the file to write, None for the standard output.
        needs_fixes: whether the text shows fixes.
    """

    format: Format
    render: Renderer
    file: Path | None
    needs_fixes: bool

    @staticmethod
    def of(settings: Settings, file: Path | None, group_by: str | None) -> Output:
        """Return the output that the settings and options ask for.

        Args:
            settings: the settings of the run.
            file: the value of --output-file.
            group_by: what to count the findings of, instead of writing them: "rule", "folder" or "file".

        Raises:
            UsageError: the format has no counts.
            CommandError: the file's folder does not exist, or a package is missing.
        """
        file = None if file == STDIN else file
        name = settings.output_format or ("full" if file is None and sys.stdout.isatty() else "concise")
        chosen = FORMATS[name]
        if group_by and not (chosen.for_people or name == "json"):
            option = "--statistics" if group_by == "rule" else "--group-by"
            raise click.UsageError(f"{option} cannot be used with --output-format {name}; use json")
        if file is not None:
            check_folder(file)
        try:
            render = _counts(chosen, group_by) if group_by else chosen.renderer()
        except ImportError as error:
            raise missing_package(f"--output-format {name}", error.name, "report") from None
        return Output(chosen, render, file, chosen.fixes and not group_by)

    def print(self, checked: Checked, totals: Totals, err: bool = False) -> None:
        """Write the findings, and print a summary.

        Args:
            checked: the results of the run.
            totals: its numbers, in which findings may be fixed that `checked` has no more.
            err: whether to print to the standard error.

        Raises:
            CommandError: the file cannot be written.
        """
        if self.file is not None:
            text = click.unstyle("".join(self.render(checked)))
            write_file(self.file, text.encode(errors="replace"))
        else:
            for piece in self.render(checked):
                # Programs read UTF-8, whatever the terminal's encoding is.
                shown = piece if self.format.for_people else piece.encode(errors="replace")
                click.echo(shown, nl=False, err=err)
        if (self.file or self.format.for_people) and not checked.settings.quiet:
            click.echo(totals.fixed_and_checked(), err=err)


def _counts(chosen: Format, group_by: str) -> Renderer:
    if group_by == "rule":
        from devicefix.report import statistics

        return statistics.text if chosen.for_people else statistics.as_json
    from devicefix.report import groups

    return partial(groups.text if chosen.for_people else groups.as_json, by=group_by)


def check_folder(file: Path) -> None:
    """Refuse a file whose folder does not exist, before any work is done.

    Raises:
        CommandError: the folder does not exist.
    """
    if not file.parent.is_dir():
        raise CommandError(f"{file}: the folder {str(file.parent)!r} does not exist")


def check_default(file: Path) -> None:
    """Refuse a file that nobody has named if it is a link or no regular file: others may have planted it.

    Raises:
        CommandError: it is one.
    """
    if file.is_symlink():
        advice = "remove it, or specify another file with --output"
        raise CommandError(f"{file}: this is a symbolic link; {advice}")
    if file.exists() and not file.is_file():
        raise CommandError(f"{file}: this is not a regular file; specify another file with --output")


def write_file(file: Path, data: bytes) -> None:
    """Write a file atomically.

    Raises:
        CommandError: the file cannot be written.
    """
    try:
        files.put(os.fspath(file), data)
    except OSError as error:
        raise os_error(file, error) from None
