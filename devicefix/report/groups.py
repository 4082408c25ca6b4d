"""The number of findings in each folder or file: those of tests and generated files come last."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import click

from devicefix.config.printable import printable_path
from devicefix.files.origin import Origin, origin_of
from devicefix.files.system import relative
from devicefix.model import Safety
from devicefix.report.checked import Checked, File

COLUMNS = ("findings", "fixable", "unsafe", "no fix")


@dataclass(slots=True)
class Group:
    """The findings of a folder or file.

    Attributes:
        path: the folder or file.
        origin: the origin of the files.
        counts: the number of findings by what can be done: "fixable", "unsafe" or "no fix".
    """

    path: str
    origin: Origin
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number of findings in each of `COLUMNS`."""
        return self.counts.total(), *(self.counts[name] for name in COLUMNS[1:])


def text(checked: Checked, by: str) -> Iterator[str]:
    """Yield a line for each group, below a line of titles.

    Args:
        checked: the results of the run.
        by: "folder" or "file".
    """
    found = groups(checked, by)
    if not found:
        return
    titles = [*COLUMNS, by]
    yield click.style("  ".join(titles), bold=True) + "\n"
    for group in found:
        columns = zip(COLUMNS, group.numbers, strict=True)
        numbers = "  ".join(f"{number:>{len(title)}}" for title, number in columns)
        kind = "" if group.origin is Origin.CODE else click.style(f" ({group.origin.value})", dim=True)
        yield f"{numbers}  {printable_path(group.path)}{kind}\n"


def as_json(checked: Checked, by: str) -> Iterator[str]:
    """Yield a JSON array with an object for each group, as `text` does."""
    names = ("count", "fixable_count", "unsafe_count", "no_fix_count")
    found = [
        {by: group.path, "kind": group.origin.name.lower(), **dict(zip(names, group.numbers, strict=True))}
        for group in groups(checked, by)
    ]
    yield json.dumps(found, indent=2) + "\n"


def groups(checked: Checked, by: str) -> list[Group]:
    """Return the groups, those with most findings first, but tests and generated files after all others.

    Args:
        checked: the results of the run.
        by: "folder" or "file".
    """
    found: dict[tuple[str, Origin], Group] = {}
    for file in checked.files:
        path = file.path if by == "file" else os.path.dirname(file.path) or os.curdir
        origin = origin_of(relative(file.path), file.data)
        group = found.setdefault((path, origin), Group(path, origin))
        group.counts.update(_kinds(file, checked))
    order = list(Origin)
    return sorted(
        found.values(), key=lambda group: (order.index(group.origin), -group.numbers[0], group.path)
    )


def _kinds(file: File, checked: Checked) -> Iterator[str]:
    for finding in file.findings:
        if checked.is_fixable(file.path, finding):
            yield "fixable"
        else:
            yield "unsafe" if finding.safety is Safety.UNSAFE else "no fix"
