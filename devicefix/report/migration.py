"""The figures of the migration report: ties by category, package, file and rule, and the manual work left."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from inspect import cleandoc
from itertools import accumulate, count
from pathlib import Path
from typing import NamedTuple

from devicefix.model import Finding, Safety
from devicefix.report import side_by_side
from devicefix.report.checked import Checked
from devicefix.report.side_by_side import Row
from devicefix.report.wording import place
from devicefix.rules.categories import Category, category
from devicefix.rules.registry import RULES
from devicefix.runner.coverage import Coverage

MAX_PACKAGES = 24  # more than that are hard to take in


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
LEFT = Kind("left", "left for people")
KINDS = (SAFE, UNSAFE, LEFT)


@dataclass(slots=True)
class Tie:
    """A finding on the page.

    Attributes:
        number: its number on the page.
        finding: the finding.
        rows: its code.
        verified: whether its fix ran in `devicefix verify`; None without a coverage file or a fix.
    """

    number: int
    finding: Finding
    rows: list[Row]
    verified: bool | None = None

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
    def fixes(self) -> int:
        """The number of fixes that a run could verify, 0 without a coverage file."""
        return sum(tie.verified is not None for tie in self.ties)

    @cached_property
    def verified(self) -> int:
        """The number of fixes that a run has verified."""
        return sum(tie.verified is True for tie in self.ties)


@dataclass
class File(Ties):
    """The ties of a file, and the definitions that a rewrite adds to it."""

    path: str = ""
    number: int = 0
    package: str = ""
    definitions: list[Row] = field(default_factory=list)


@dataclass
class Group(Ties):
    """The ties of one category, package, rule or message."""

    key: str = ""
    name: str = ""
    summary: str = ""
    files: int = 0


@dataclass
class Rule(Group):
    """The ties of one rule and one kind, by message, and the sections of the rule's page."""

    messages: list[Group] = field(default_factory=list)
    page: dict[str, str] = field(default_factory=dict)


@dataclass
class Migration(Ties):
    """Everything that the report shows.

    Attributes:
        files: the files with ties, ordered by path.
        checked: the number of files that were checked.
        failed: the number of files that could not be checked.
    """

    files: list[File] = field(default_factory=list)
    checked: int = 0
    failed: int = 0

    @property
    def categories(self) -> list[Group]:
        """The ties by category of their rules."""

        def made(key: str, name: str) -> Group:
            return Group(key=key, name=name, summary=category(key).summary)

        return sorted(self._groups(lambda _, tie: tie.category[:2], made), key=lambda group: group.key)

    @property
    def packages(self) -> list[Group]:
        """The ties by package, largest first."""
        groups = self._groups(lambda file, _: (file.package, file.package), _group)
        return sorted(groups, key=lambda group: (-group.total, group.key))

    @property
    def rules(self) -> list[Group]:
        """The ties by rule."""

        def named(_: File, tie: Tie) -> tuple[str, str]:
            code = tie.finding.code
            return code, RULES[code].name if code in RULES else ""

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
            ("only the rewrite", left.count(0) - reviewed),
            ("a review of unsafe fixes", reviewed),
            ("1 or 2 places by hand", sum(1 <= many <= 2 for many in left)),
            ("3 to 9 places by hand", sum(3 <= many <= 9 for many in left)),
            ("10 or more places by hand", sum(many >= 10 for many in left)),
        ]

    def _groups(
        self, named: Callable[[File, Tie], tuple[str, str]], made: Callable[[str, str], Group]
    ) -> list[Group]:
        groups: dict[str, Group] = {}
        files: dict[str, set[int]] = {}
        for file in self.files:
            for tie in file.ties:
                key, name = named(file, tie)
                groups.setdefault(key, made(key, name)).ties.append(tie)
                files.setdefault(key, set()).add(file.number)
        for key, group in groups.items():
            group.files = len(files[key])
        return list(groups.values())


def migration(checked: Checked, coverage: Coverage | None = None) -> Migration:
    """Return the figures of a run.

    Args:
        checked: the results of the run, in which the fixes hold replacements.
        coverage: the fixes that ran in `devicefix verify`, None if they are not to be shown.
    """
    files: list[File] = []
    numbers = count(1)
    for found in sorted(checked.files, key=lambda each: each.path):
        definitions = side_by_side.definitions(found.findings, found.lines)
        file = File(path=found.path, number=len(files) + 1, definitions=definitions)
        entry = coverage.entry(found.path, found.data) if coverage else None
        for finding in found.findings:
            tie = Tie(next(numbers), finding, side_by_side.rows(finding, found.lines))
            if coverage is not None:
                tie.verified = entry.is_seen(finding) if entry else _without_run(finding)
            file.ties.append(tie)
        files.append(file)
    for file, package in zip(files, _packages([file.path for file in files]), strict=True):
        file.package = package
    ties = [tie for file in files for tie in file.ties]
    return Migration(ties, files, len(checked.outcomes), len(checked.failed))


def _without_run(finding: Finding) -> bool | None:
    """Return that a fix was not verified; None if a rewrite does not make it."""
    return False if finding.safety is Safety.SAFE else None


def _packages(paths: list[str]) -> list[str]:
    """Return the package of each file: its folder, cut at the depth that keeps their number small."""
    folders = [Path(os.path.abspath(path)).parent for path in paths]
    try:
        above = len(Path(os.path.commonpath(folders)).parts)
    except ValueError:  # no folders, or folders on several drives
        above = 0
    within = [folder.parts[above:] for folder in folders]
    depths = range(max(map(len, within), default=0), 1, -1)
    depth = next(
        (number for number in depths if len({parts[:number] for parts in within}) <= MAX_PACKAGES), 1
    )
    return ["/".join(parts[:depth]) or "." for parts in within]


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
