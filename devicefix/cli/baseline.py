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
    from devicefix.model import Outcome
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
    found = {outcome.path: outcome for outcome in checked.outcomes}
    for file, outcomes in _by_baseline(checked).items():
        found |= {outcome.path: outcome for outcome in _new(file, outcomes, checked, paths)}
    return replace(checked, outcomes=list(found.values()))


def _by_baseline(checked: Checked) -> dict[Path, list[Outcome]]:
    """Return the files of each baseline; the one of the run may have none."""
    root = checked.settings.baseline
    found: dict[Path, list[Outcome]] = {} if root is None else {root: []}
    for outcome in checked.outcomes:
        file = checked.resolver.of(outcome.path).baseline
        if file is not None:
            found.setdefault(file, []).append(outcome)
    return found


def _new(file: Path, outcomes: list[Outcome], checked: Checked, paths: tuple[Path, ...]) -> list[Outcome]:
    """Return the files of a baseline without their known findings, and print how many those are."""
    from devicefix.runner import baseline

    known, shown = baseline.read(file), printable(str(file))
    total = known.total()
    left = baseline.split(outcomes, known, file.parent)  # leaves in `known` what was not found
    if not checked.settings.quiet:
        if hidden := total - known.total():
            click.echo(f"{count(hidden, 'known finding')} not shown (--baseline {shown}).", err=True)
        if gone := (known - _unchecked(known, file.parent, checked, paths)).total():
            verb = "exists" if gone == 1 else "exist"
            message = f"{count(gone, 'known finding')} no longer {verb}"
            is_new = any(outcome.result.findings for outcome in left)
            first = "fix the new findings, then " if is_new else ""
            click.echo(f"{message}: {first}update {shown} with --write-baseline.", err=True)
    return left


def write(checked: Checked, paths: tuple[Path, ...]) -> None:
    """Write the findings to the baseline of their files, and keep its entries that this run did not check.

    Args:
        checked: the results of the run.
        paths: the paths that the command line names.

    Raises:
        ConfigError: the file exists and is not a baseline.
        CommandError: the file cannot be written.
    """
    for file, outcomes in _by_baseline(checked).items():
        _write(file, outcomes, checked, paths)


def _write(file: Path, outcomes: list[Outcome], checked: Checked, paths: tuple[Path, ...]) -> None:
    from devicefix.runner import baseline

    found = Counter(entry for outcome in outcomes for entry in baseline.entries(outcome, file.parent))
    before, difference = None, ""
    try:
        files.refuse_dangling(str(file))
        if file.exists():
            known = baseline.read(file)
            found += _unchecked(known, file.parent, checked, paths)
            if found != known:
                difference = f" ({(found - known).total()} new, {(known - found).total()} removed)"
            before = file.read_bytes()
        files.write(files.Change(str(file), before, baseline.written(found.elements())))
    except OSError as error:
        raise os_error(file, error) from None
    if not checked.settings.quiet:
        click.echo(f"Wrote {count(found.total(), 'finding')} to {printable(str(file))}{difference}.")


def _unchecked(
    known: Counter[Entry], parent: Path, checked: Checked, paths: tuple[Path, ...]
) -> Counter[Entry]:
    """Return the entries whose files this run did not check, or whose rules were disabled.

    Args:
        known: the entries of a baseline.
        parent: its folder.
        checked: the results of the run.
        paths: the paths that the command line names.
    """
    from devicefix.rules.registry import RULES

    folder = parent.absolute()
    files = {os.path.abspath(outcome.path) for outcome in checked.outcomes}
    folders = [os.path.join(os.path.abspath(path), "") for path in paths]

    def was_checked(entry: Entry) -> bool:
        path = os.path.normpath(folder / entry.path)
        rule = RULES.get(entry.code)
        settings = checked.resolver.of(path)
        if rule and settings.target not in rule.targets:
            return False
        if rule and not settings.for_file(path).enabled(entry.code, rule.default):
            return False
        removed = not os.path.lexists(path) and any(f"{path}{os.sep}".startswith(top) for top in folders)
        return path in files or removed

    return Counter({entry: number for entry, number in known.items() if not was_checked(entry)})
