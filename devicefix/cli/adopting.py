"""What `devicefix check` does for a code base that has findings already: a baseline, and `noqa` comments."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from devicefix.cli.looking import complain
from devicefix.cli.options import Trouble
from devicefix.config.settings import Settings

if TYPE_CHECKING:
    from devicefix.facts.comments import Added
    from devicefix.model import Finding, Outcome
    from devicefix.runner.baseline import Entry


def new(outcomes: list[Outcome], paths: tuple[Path, ...], settings: Settings) -> list[Outcome]:
    """What became of files, less what the baseline knows; tells how much that is, and what is gone.

    Raises:
        ConfigError: the baseline cannot be used.
    """
    from devicefix.runner import baseline

    file = settings.baseline
    if file is None:
        return outcomes
    known = baseline.read(file)
    total = known.total()
    found = baseline.split(outcomes, known, file.parent)
    if not settings.quiet:
        if hidden := total - known.total():
            click.echo(f"{_count(hidden, 'known finding')} not shown (--baseline {file}).", err=True)
        if gone := (known - _not_looked_for(known, outcomes, paths, settings)).total():
            what = f"{_count(gone, 'known finding')} no longer there"
            click.echo(f"{what}: update {file} with --write-baseline.", err=True)
    return found


def write_baseline(outcomes: list[Outcome], paths: tuple[Path, ...], settings: Settings) -> None:
    """Write what was found into the baseline; what was not looked for stays in it.

    Raises:
        ConfigError: there is a file in its place that is no baseline.
        Trouble: it can't be written.
    """
    from devicefix.files import write as writing
    from devicefix.runner import baseline

    file = settings.baseline
    assert file is not None
    found = Counter(entry for outcome in outcomes for entry in baseline.entries(outcome, file.parent))
    try:
        if file.exists():
            found += _not_looked_for(baseline.read(file), outcomes, paths, settings)
            writing.write(writing.Change(str(file), file.read_bytes(), baseline.written(found.elements())))
        else:
            with file.open("xb") as new_file:
                new_file.write(baseline.written(found.elements()))
    except OSError as problem:
        raise Trouble(f"{file}: {problem.strerror or problem}") from None
    if not settings.quiet:
        click.echo(f"Wrote {_count(found.total(), 'finding')} to {file}.")


def _not_looked_for(
    known: Counter[Entry], outcomes: list[Outcome], paths: tuple[Path, ...], settings: Settings
) -> Counter[Entry]:
    """The entries of which a run says nothing: it has left their files out, or their rules were off."""
    from devicefix.rules.registry import RULES

    assert settings.baseline is not None
    folder = settings.baseline.parent.absolute()
    looked_at = {os.path.abspath(outcome.path) for outcome in outcomes}
    named = [os.path.join(os.path.abspath(path), "") for path in paths]

    def looked_for(entry: Entry) -> bool:
        path = os.path.normpath(folder / entry.path)
        rule = RULES.get(entry.code)
        if rule and not (
            settings.target in rule.targets and settings.for_file(path).enabled(entry.code, rule.default)
        ):
            return False
        removed = not os.path.lexists(path) and any(f"{path}{os.sep}".startswith(each) for each in named)
        return path in looked_at or removed

    return Counter({entry: count for entry, count in known.items() if not looked_for(entry)})


def add_noqa(outcomes: list[Outcome], settings: Settings) -> bool:
    """Silence findings by comments in their files; tells how many lines got one, and what has none.

    Returns:
        Whether findings remain.
    """
    from devicefix.files.write import Change, write_each

    changes: list[Change] = []
    lines: dict[str, int] = {}
    left: list[str] = []

    def onerror(path: str, problem: OSError) -> None:
        lines[path] = 0
        left.append(path)
        complain(path, problem.strerror or str(problem))

    for outcome in outcomes:
        path, findings = outcome.path, outcome.result.findings
        try:
            before = Path(path).read_bytes() if findings else b""
        except OSError as problem:
            onerror(path, problem)
            continue
        added = _with_comments(path, before, findings)
        if added.lines:
            changes.append(Change(path, before, added.data))
            lines[path] = added.lines
        for finding in added.left:
            left.append(path)
            cell = "" if finding.cell is None else f"cell {finding.cell}:"
            why = f"{finding.code} got no comment here: use a baseline or per-file-ignores"
            complain(f"{path}:{cell}{finding.line}:{finding.column}", why)
    write_each(changes, onerror)
    if not settings.quiet:
        click.echo(f"Added {_count(sum(lines.values()), 'noqa directive')}.")
    return bool(left)


def _with_comments(path: str, data: bytes, findings: list[Finding]) -> Added:
    """A file with comments; one that is no module by its name is left as it is."""
    from devicefix.facts.comments import Added, add
    from devicefix.files.kinds import is_python

    if findings and (is_python(path) or not Path(path).suffix):
        return add(data, findings)
    return Added(data, 0, findings)


def _count(number: int, thing: str) -> str:
    """A number of things."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
