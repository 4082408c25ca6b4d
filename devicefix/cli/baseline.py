"""The baseline of `devicefix check`: known findings, which are not reported."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from devicefix.cli.errors import os_error
from devicefix.config.printable import printable
from devicefix.files import write as files
from devicefix.report.wording import count

if TYPE_CHECKING:
    from devicefix.report.checked import Checked
    from devicefix.runner.baseline import Entry


def hide_known(checked: Checked, paths: tuple[Path, ...]) -> Checked:
    """Return the results without the findings of the baseline, and print how many those are.

    Args:
        checked: the results of the run.
        paths: the paths that the command line names.

    Raises:
        ConfigError: the baseline cannot be read.
    """
    from devicefix.runner import baseline

    file = checked.settings.baseline
    if file is None:
        return checked
    known, shown = baseline.read(file), printable(str(file))
    total = known.total()
    outcomes = baseline.split(checked.outcomes, known, file.parent)  # leaves in `known` what was not found
    if not checked.settings.quiet:
        if hidden := total - known.total():
            click.echo(f"{count(hidden, 'known finding')} not shown (--baseline {shown}).", err=True)
        if gone := (known - _unchecked(known, checked, paths)).total():
            message = f"{count(gone, 'known finding')} no longer exist: update {shown} with --write-baseline."
            click.echo(message, err=True)
    return replace(checked, outcomes=outcomes)


def write(checked: Checked, paths: tuple[Path, ...]) -> None:
    """Write the findings to the baseline, and keep its entries that this run did not check.

    Args:
        checked: the results of the run.
        paths: the paths that the command line names.

    Raises:
        ConfigError: the file exists and is not a baseline.
        CommandError: the file cannot be written.
    """
    from devicefix.runner import baseline

    file = checked.settings.baseline
    assert file is not None
    found = Counter(entry for outcome in checked.outcomes for entry in baseline.entries(outcome, file.parent))
    try:
        if file.exists():
            found += _unchecked(baseline.read(file), checked, paths)
            files.write(files.Change(str(file), file.read_bytes(), baseline.written(found.elements())))
        else:
            files.refuse_dangling(str(file))
            with file.open("xb") as new_file:
                new_file.write(baseline.written(found.elements()))
    except OSError as error:
        raise os_error(file, error) from None
    if not checked.settings.quiet:
        click.echo(f"Wrote {count(found.total(), 'finding')} to {printable(str(file))}.")


def _unchecked(known: Counter[Entry], checked: Checked, paths: tuple[Path, ...]) -> Counter[Entry]:
    """Return the entries whose files this run did not check, or whose rules were disabled."""
    from devicefix.rules.registry import RULES

    settings = checked.settings
    assert settings.baseline is not None
    folder = settings.baseline.parent.absolute()
    files = {os.path.abspath(outcome.path) for outcome in checked.outcomes}
    folders = [os.path.join(os.path.abspath(path), "") for path in paths]

    def was_checked(entry: Entry) -> bool:
        path = os.path.normpath(folder / entry.path)
        rule = RULES.get(entry.code)
        if rule and settings.target not in rule.targets:
            return False
        if rule and not settings.for_file(path).enabled(entry.code, rule.default):
            return False
        removed = not os.path.lexists(path) and any(f"{path}{os.sep}".startswith(top) for top in folders)
        return path in files or removed

    return Counter({entry: number for entry, number in known.items() if not was_checked(entry)})
