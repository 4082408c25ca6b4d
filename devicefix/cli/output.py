"""How `devicefix check` tells what it has found, and where."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from devicefix.cli.options import STDIN, Trouble
from devicefix.config.settings import Settings
from devicefix.report import FORMATS, Format, Renderer

if TYPE_CHECKING:
    from devicefix.report.checked import Checked


class Output(NamedTuple):
    """What to write, how, and where: a file, or None for the standard output."""

    format: Format
    render: Renderer
    file: Path | None
    needs_fixes: bool

    @staticmethod
    def of(settings: Settings, file: Path | None, statistics: bool) -> Output:
        """What the settings and options say.

        Raises:
            UsageError: the format has no statistics.
            Trouble: there is no folder for the file, or a library is missing.
        """
        file = None if file == STDIN else file
        name = settings.output_format or ("full" if file is None and sys.stdout.isatty() else "concise")
        form = FORMATS[name]
        if statistics and not (form.for_people or name == "json"):
            raise click.UsageError(f"--statistics does not go with --output-format {name}: use json")
        if file is not None and not file.parent.is_dir():
            raise Trouble(f"{file}: there is no folder {str(file.parent)!r}")
        try:
            render = _statistics(form) if statistics else form.renderer()
        except ImportError as problem:
            raise Trouble(
                f"{problem.name} is missing; install it with: pip install 'devicefix[report]'"
            ) from None
        return Output(form, render, file, form.fixes and not statistics)

    def tell(self, checked: Checked) -> None:
        """Write what was found, and a summary to the terminal.

        Raises:
            Trouble: the file can't be written.
        """
        from devicefix.report import totals

        self._write(self.render(checked))
        if (self.file or self.format.for_people) and not checked.settings.quiet:
            results = [outcome.result for outcome in checked.outcomes]
            click.echo(totals.checked(results, len(checked.failed)))

    def _write(self, pieces: Iterator[str]) -> None:
        if self.file is not None:
            _write_file(self.file, click.unstyle("".join(pieces)))
            return
        for piece in pieces:
            # What a program reads is UTF-8, whatever the terminal's encoding is.
            click.echo(piece if self.format.for_people else piece.encode(errors="replace"), nl=False)


def _statistics(form: Format) -> Renderer:
    from devicefix.report import statistics

    return statistics.text if form.for_people else statistics.as_json


def _write_file(file: Path, text: str) -> None:
    from devicefix.files import write as writing

    try:
        writing.put(os.fspath(file), text.encode(errors="replace"))
    except OSError as problem:
        raise Trouble(f"{file}: {problem.strerror or problem}") from None
