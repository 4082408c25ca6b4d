"""The figures of the migration report: ties by category, package, file and rule, and the manual work left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from devicefix.files.documents import STDIN
from devicefix.files.owners import Owners
from devicefix.report import migration_since, side_by_side
from devicefix.report.checked import Checked, below
from devicefix.report.earlier import Earlier, Entry
from devicefix.report.migration_since import KNOWN, NEW, Since
from devicefix.report.migration_ties import LEFT, File, Group, Kind, Rule, Tie, Ties, rule_of
from devicefix.rules.categories import category
from devicefix.rules.registry import RULES
from devicefix.runner.coverage import NOT_RUN, Coverage

MAX_PACKAGES = 24  # more than that are hard to take in
NO_OWNER = "none"  # every owner has an @


class About(NamedTuple):
    """The title of a report, the revision of the code, and the time, both empty if unknown."""

    title: str
    revision: str = ""
    made: str = ""


@dataclass
class Migration(Ties):
    """Everything that the report shows.

    Attributes:
        files: the files with ties, ordered by path.
        checked: the number of files that were checked.
        failed: the number of files that could not be checked.
        owned: the file with the owners, None without one.
        since: what has changed since an earlier report, None without one.
    """

    files: list[File] = field(default_factory=list)
    checked: int = 0
    failed: int = 0
    owned: Owners | None = None
    since: Since | None = None

    def entries(self) -> Iterator[Entry]:
        """Yield the findings as the machine formats show them."""
        return (_entry(file, tie) for file in self.files for tie in file.ties)

    @property
    def categories(self) -> list[Group]:
        """The ties by category of their rules."""
        groups = self._groups(lambda _, tie: [tie.category.prefix])
        for group in groups:
            group.name, group.summary = category(group.key).name, category(group.key).summary
        return sorted(groups, key=lambda group: group.key)

    @property
    def packages(self) -> list[Group]:
        """The ties by package, largest first."""
        return sorted(self._groups(lambda file, _: [file.package]), key=_largest)

    @property
    def owners(self) -> list[Group]:
        """The ties by owner, largest first; those of several owners count for each of them."""
        groups = self._groups(lambda file, _: file.owners or [NO_OWNER]) if self.owned else []
        return sorted(groups, key=_largest)

    @property
    def rules(self) -> list[Group]:
        """The ties by rule."""
        groups = self._groups(lambda _, tie: [tie.finding.code])
        for group in groups:
            group.name = RULES[group.key].name
        return sorted(groups, key=lambda group: group.key)

    def by_rule(self, kind: Kind) -> list[Rule]:
        """Return the ties of one kind by rule and message, largest first."""
        groups = self._groups(lambda _, tie: [tie.finding.code] if tie.kind == kind else [])
        return sorted(map(rule_of, groups), key=_largest)

    def amount(self, kind: Kind) -> dict[str, int]:
        """Return the number of ties of one kind, and of their files, rules and messages."""
        ties = [tie.finding for tie in self.ties if tie.kind == kind]
        return {
            "ties": len(ties),
            "files": sum(file.counts[kind.key] > 0 for file in self.files),
            "rules": len({finding.code for finding in ties}),
            "messages": len({(finding.code, finding.message) for finding in ties}),
        }

    @property
    def most_left(self) -> list[File]:
        """The files with manual work left, those with most first."""
        left = [file for file in self.files if file.counts["left"] or file.counts["unsafe"]]
        return sorted(left, key=lambda file: (-file.counts["left"], -file.counts["unsafe"], file.path))

    def _groups(self, keys: Callable[[File, Tie], Iterable[str]]) -> list[Group]:
        """Return the ties by keys, which each tie may have several of."""
        groups: dict[str, Group] = {}
        for file in self.files:
            for tie in file.ties:
                for key in keys(file, tie):
                    groups.setdefault(key, Group(key=key, name=key)).ties.append(tie)
        for group in groups.values():
            group.files = len({tie.file for tie in group.ties})
        return list(groups.values())


def _largest(group: Group) -> tuple[int, str]:
    return -group.total, group.key


def migration(
    checked: Checked,
    coverage: Coverage | None = None,
    root: Path | None = None,
    owners: Owners | None = None,
    earlier: Earlier | None = None,
) -> Migration:
    """Return the figures of a run.

    Args:
        checked: the results of the run, in which the fixes hold replacements.
        coverage: the fixes that ran in `devicefix verify`, None if they are not to be shown.
        root: the folder that paths are relative to, by default the current one.
        owners: the owners of the files, None if they are not to be shown.
        earlier: the earlier report to compare with, if there is one.
    """
    root = (root or Path()).resolve()
    files: list[File] = []
    numbers = count(1)
    shown = ((_path(each.path, root), each) for each in checked.files)
    for path, found in sorted(shown, key=lambda each: each[0]):
        definitions = side_by_side.definitions(found.findings, found.lines)
        file = File(path=path, number=len(files) + 1, definitions=definitions)
        file.owners = _owners(path, owners)
        entry = coverage.entry(found.path, found.data) or NOT_RUN if coverage else None
        for finding, fingerprint in zip(found.findings, found.fingerprints(path), strict=True):
            rows = side_by_side.rows(finding, found.lines)
            verified = entry.is_seen(finding) if entry else None
            tie = Tie(next(numbers), file.number, finding, fingerprint, rows, verified)
            if earlier is not None:
                tie.status = KNOWN if fingerprint in earlier.findings else NEW
            file.ties.append(tie)
        files.append(file)
    ties = [tie for file in files for tie in file.ties]
    made = Migration(ties, files, len(checked.outcomes), len(checked.failed), owners)
    gone: list[Entry] = []
    if earlier is not None:
        paths = [_path(outcome.path, root) for outcome in checked.outcomes]
        gone = migration_since.gone(files, paths, checked.rules, earlier)
    packages = _packages([file.path for file in files] + [entry.path for entry in gone])
    for file in files:
        file.package = packages[file.path]
    if earlier is not None:
        places = ((each, packages[each.path], _owners(each.path, owners)) for each in gone)
        moved = [each._replace(folder=folder, owners=owned) for each, folder, owned in places]
        made.since = migration_since.since(files, earlier, moved)
    return made


def _path(path: str, root: Path) -> str:
    """Return the path that the report shows for a file."""
    if path == STDIN:
        return path
    whole = Path(os.path.abspath(path))
    relative = whole.relative_to(root) if whole.is_relative_to(root) else whole  # below a linked folder
    return below(path, root) or relative.as_posix()


def _owners(path: str, owners: Owners | None) -> tuple[str, ...]:
    """Return the owners of a file; one outside of the repository, or the standard input, has none."""
    return () if owners is None or path == STDIN or os.path.isabs(path) else owners.of(path)


def _entry(file: File, tie: Tie) -> Entry:
    finding, rule = tie.finding, RULES[tie.finding.code]
    place = (file.path, finding.cell, finding.line, finding.column, finding.end_line, finding.end_column)
    name, fix = rule.name, "none" if tie.kind == LEFT else tie.kind.key
    about = (finding.code, name, fix, finding.message, tie.category.name)
    return Entry(tie.status, *place, *about, file.package, file.owners, tie.verified, tie.fingerprint)


def _packages(paths: list[str]) -> dict[str, str]:
    """Return the package of each file: its folder, cut at the depth that keeps their number small."""
    folders = {path: PurePosixPath(path).parent.parts for path in paths}
    different = set(folders.values())
    above = sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, zip(*different, strict=False)))
    deeper = range(above + 2, max(map(len, different), default=0) + 1)
    fits = takewhile(lambda number: len({parts[:number] for parts in different}) <= MAX_PACKAGES, deeper)
    depth = max(fits, default=above + 1)
    return {path: "/".join(parts[:depth]) or "." for path, parts in folders.items()}
