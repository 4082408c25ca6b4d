"""The figures of the migration report: ties by category, package, file and rule, and the manual work left."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from inspect import cleandoc
from itertools import accumulate, count, takewhile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from devicefix.files.documents import STDIN
from devicefix.files.owners import Owners
from devicefix.model import Finding, Safety
from devicefix.report import side_by_side
from devicefix.report.checked import Checked, below
from devicefix.report.earlier import Earlier, Entry
from devicefix.report.side_by_side import Row
from devicefix.report.wording import place
from devicefix.rules.categories import Category, category
from devicefix.rules.registry import RULES
from devicefix.runner.coverage import Coverage

MAX_PACKAGES = 24  # more than that are hard to take in
NO_OWNER = "none"  # every owner has an @
NEW, KNOWN, FIXED, UNCHECKED = "new", "known", "fixed", "unchecked"
UNPARSABLE = "DF901"


class About(NamedTuple):
    """The title of a report, the revision of the code, and the time, both empty if unknown."""

    title: str
    revision: str = ""
    made: str = ""


class Kind(NamedTuple):
    """A kind of tie, by how it can be fixed.

    Attributes:
        key: its name in the page's data.
        name: its name for people.
    """

    key: str
    name: str


SAFE = Kind("safe", "fixed by a rewrite")
UNSAFE = Kind("unsafe", "fixed with --unsafe-fixes")
LEFT = Kind("left", "left to fix by hand")
KINDS = (SAFE, UNSAFE, LEFT)


@dataclass(slots=True)
class Tie:
    """A finding on the page.

    Attributes:
        number: its number on the page.
        file: the number of its file.
        finding: the finding.
        fingerprint: what identifies it in a later report.
        rows: its code.
        verified: whether its fix ran in `devicefix verify`; None without a coverage file or a fix.
        status: whether it is new or known since an earlier report; None without one.
    """

    number: int
    file: int
    finding: Finding
    fingerprint: str
    rows: list[Row]
    verified: bool | None = None
    status: str | None = None

    @property
    def kind(self) -> Kind:
        """Return how it can be fixed."""
        return {None: LEFT, Safety.SAFE: SAFE, Safety.UNSAFE: UNSAFE}[self.finding.safety]

    @property
    def category(self) -> Category:
        """The category of its rule."""
        return category(self.finding.code)

    @property
    def place(self) -> str:
        """Its position in the file."""
        return place(self.finding)


@dataclass
class Ties:
    """A collection of ties, with their counts."""

    ties: list[Tie] = field(default_factory=list)

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of ties of each kind, by the kind's key."""
        counted = Counter(tie.kind.key for tie in self.ties)
        return {kind.key: counted[kind.key] for kind in KINDS}

    @property
    def total(self) -> int:
        """The number of ties."""
        return len(self.ties)

    @cached_property
    def lines(self) -> int:
        """The number of lines with ties."""
        found = {
            (tie.file, tie.finding.cell, line)
            for tie in self.ties
            for line in range(tie.finding.line, tie.finding.end_line + 1)
        }
        return len(found)

    @cached_property
    def fixes(self) -> int:
        """The number of fixes that a run could verify, 0 without a coverage file."""
        return sum(tie.verified is not None for tie in self.ties)

    @cached_property
    def verified(self) -> int:
        """The number of fixes that a run has verified."""
        return sum(tie.verified is True for tie in self.ties)


@dataclass
class File(Ties):
    """The ties of a file, its owners, and the definitions that a rewrite adds to it."""

    path: str = ""
    number: int = 0
    package: str = ""
    owners: tuple[str, ...] = ()
    definitions: list[Row] = field(default_factory=list)


@dataclass
class Group(Ties):
    """The ties of one category, package, owner, rule or message."""

    key: str = ""
    name: str = ""
    summary: str = ""
    files: int = 0


@dataclass
class Rule(Group):
    """The ties of one rule and one kind, by message, and the sections of the rule's page."""

    messages: list[Group] = field(default_factory=list)
    page: dict[str, str] = field(default_factory=dict)


class Progress(NamedTuple):
    """The numbers of ties that are new, known, fixed, and unchecked since an earlier report."""

    new: int
    known: int
    fixed: int
    unchecked: int


@dataclass(frozen=True)
class Since:
    """The changes since an earlier report.

    Attributes:
        earlier: the earlier report.
        fixed: its findings that are gone, in files and of rules that were checked again.
        unchecked: its findings that may still be there.
        statuses: for each finding of both reports its package and its status.
    """

    earlier: Earlier
    fixed: list[Entry]
    unchecked: list[Entry]
    statuses: list[tuple[str, str]]

    @property
    def total(self) -> Progress:
        """The progress of all packages."""
        return _progress(status for _, status in self.statuses)

    @property
    def packages(self) -> list[tuple[str, Progress]]:
        """The progress of each package, those with the most changes first."""
        by_package: dict[str, list[str]] = {}
        for package, status in self.statuses:
            by_package.setdefault(package, []).append(status)
        found = ((package, _progress(statuses)) for package, statuses in by_package.items())
        return sorted(found, key=lambda each: (-each[1].fixed - each[1].new, -each[1].known, each[0]))


def _progress(statuses: Iterable[str]) -> Progress:
    counted = Counter(statuses)
    return Progress(*(counted[status] for status in (NEW, KNOWN, FIXED, UNCHECKED)))


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

        def made(key: str, name: str) -> Group:
            return Group(key=key, name=name, summary=category(key).summary)

        return sorted(self._groups(lambda _, tie: [tie.category[:2]], made), key=lambda group: group.key)

    @property
    def packages(self) -> list[Group]:
        """The ties by package, largest first."""
        groups = self._groups(lambda file, _: [(file.package, file.package)], _group)
        return sorted(groups, key=lambda group: (-group.total, group.key))

    @property
    def owners(self) -> list[Group]:
        """The ties by owner, largest first; those of several owners count for each of them."""
        if self.owned is None:
            return []
        groups = self._groups(lambda file, _: [(owner, owner) for owner in file.owners or [NO_OWNER]], _group)
        return sorted(groups, key=lambda group: (-group.total, group.key))

    @property
    def rules(self) -> list[Group]:
        """The ties by rule."""

        def named(_: File, tie: Tie) -> list[tuple[str, str]]:
            code = tie.finding.code
            return [(code, RULES[code].name if code in RULES else "")]

        return sorted(self._groups(named, _group), key=lambda group: group.key)

    def by_rule(self, kind: Kind) -> list[Rule]:
        """Return the ties of one kind by rule and message, largest first."""
        chosen = Migration()
        for file in self.files:
            ties = [tie for tie in file.ties if tie.kind == kind]
            chosen.files.append(File(ties, file.path, file.number))
        made = [_rule(group) for group in chosen.rules]
        return sorted(made, key=lambda rule: (-rule.total, rule.key))

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

    @property
    def half(self) -> int:
        """The smallest number of files that hold at least half of the ties left for people."""
        left = sorted((file.counts["left"] for file in self.files), reverse=True)
        return sum(2 * before < sum(left) for before in accumulate(left, initial=0)) if sum(left) else 0

    @property
    def by_effort(self) -> list[tuple[str, int]]:
        """The number of files by the amount of manual work."""
        left = [file.counts["left"] for file in self.files]
        reviewed = sum(bool(file.counts["unsafe"]) and not file.counts["left"] for file in self.files)
        return [
            ("only safe fixes", left.count(0) - reviewed),
            ("a review of unsafe fixes", reviewed),
            ("1 or 2 manual changes", sum(1 <= many <= 2 for many in left)),
            ("3 to 9 manual changes", sum(3 <= many <= 9 for many in left)),
            ("10 or more manual changes", sum(many >= 10 for many in left)),
        ]

    def _groups(
        self, named: Callable[[File, Tie], list[tuple[str, str]]], made: Callable[[str, str], Group]
    ) -> list[Group]:
        groups: dict[str, Group] = {}
        for file in self.files:
            for tie in file.ties:
                for key, name in named(file, tie):
                    groups.setdefault(key, made(key, name)).ties.append(tie)
        for group in groups.values():
            group.files = len({tie.file for tie in group.ties})
        return list(groups.values())


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
        entry = coverage.entry(found.path, found.data) if coverage else None
        for finding, fingerprint in zip(found.findings, found.fingerprints(path), strict=True):
            rows = side_by_side.rows(finding, found.lines)
            tie = Tie(next(numbers), file.number, finding, fingerprint, rows)
            if coverage is not None:
                tie.verified = entry.is_seen(finding) if entry else _without_run(finding)
            if earlier is not None:
                tie.status = KNOWN if fingerprint in earlier.findings else NEW
            file.ties.append(tie)
        files.append(file)
    ties = [tie for file in files for tie in file.ties]
    made = Migration(ties, files, len(checked.outcomes), len(checked.failed), owners)
    gone = _gone(made, checked, root, earlier) if earlier else []
    packages = _packages([file.path for file in files] + [entry.path for entry in gone])
    for file in files:
        file.package = packages[file.path]
    if earlier is not None:
        made.since = _since(made, earlier, [entry._replace(folder=packages[entry.path]) for entry in gone])
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


def _without_run(finding: Finding) -> bool | None:
    """Return that a fix was not verified; None if a rewrite does not make it."""
    return False if finding.safety is Safety.SAFE else None


def _entry(file: File, tie: Tie) -> Entry:
    finding, rule = tie.finding, RULES.get(tie.finding.code)
    return Entry(
        status=tie.status,
        path=file.path,
        cell=finding.cell,
        line=finding.line,
        column=finding.column,
        end_line=finding.end_line,
        end_column=finding.end_column,
        code=finding.code,
        name=rule.name if rule else None,
        fix="none" if tie.kind == LEFT else tie.kind.key,
        message=finding.message,
        category=tie.category.name,
        folder=file.package,
        owners=file.owners,
        ran=tie.verified,
        fingerprint=tie.fingerprint,
    )


def _gone(found: Migration, checked: Checked, root: Path, earlier: Earlier) -> list[Entry]:
    """Return the findings of an earlier report that are not in this one, each with its status.

    A finding is fixed only if its file was checked with its rule. The other rules see nothing in a file that
    cannot be parsed.
    """
    here = {tie.fingerprint for tie in found.ties}
    unparsable = {
        file.path for file in found.files if any(tie.finding.code == UNPARSABLE for tie in file.ties)
    }
    again = {_path(outcome.path, root) for outcome in checked.outcomes} - unparsable
    rules = checked.rules | {tie.finding.code for tie in found.ties}
    return [
        entry._replace(
            status=FIXED if entry.path in again and entry.code in rules else UNCHECKED,
            owners=_owners(entry.path, found.owned),
        )
        for fingerprint, entry in earlier.findings.items()
        if fingerprint not in here
    ]


def _since(found: Migration, earlier: Earlier, gone: list[Entry]) -> Since:
    statuses = [(file.package, tie.status or NEW) for file in found.files for tie in file.ties]
    statuses += ((entry.folder, entry.status or FIXED) for entry in gone)
    fixed, unchecked = ([entry for entry in gone if entry.status == status] for status in (FIXED, UNCHECKED))
    return Since(earlier, fixed, unchecked, statuses)


def _packages(paths: list[str]) -> dict[str, str]:
    """Return the package of each file: its folder, cut at the depth that keeps their number small."""
    folders = {path: PurePosixPath(path).parent.parts for path in paths}
    different = set(folders.values())
    above = sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, zip(*different, strict=False)))
    deeper = range(above + 2, max(map(len, different), default=0) + 1)
    fits = takewhile(lambda number: len({parts[:number] for parts in different}) <= MAX_PACKAGES, deeper)
    depth = max(fits, default=above + 1)
    return {path: "/".join(parts[:depth]) or "." for path, parts in folders.items()}


def _group(key: str, name: str) -> Group:
    return Group(key=key, name=name)


def _rule(group: Group) -> Rule:
    """Return a rule with its messages and its page."""
    messages: dict[str, Group] = {}
    for tie in group.ties:
        text = tie.finding.message
        messages.setdefault(text, Group(key=text, name=text)).ties.append(tie)
    found = sorted(messages.values(), key=lambda each: (-each.total, each.key))
    rule = RULES.get(group.key)
    summary = rule.summary if rule else ""
    sections = _sections(rule.__doc__ or "") if rule else {}
    return Rule(group.ties, group.key, group.name, summary, group.files, found, sections)


def _sections(docstring: str) -> dict[str, str]:
    """Return the sections of a rule's page, as Markdown, by title."""
    sections = f"\n{cleandoc(docstring)}".split("\n## ")[1:]
    return {
        title.strip(): text.strip() for title, _, text in (section.partition("\n") for section in sections)
    }
