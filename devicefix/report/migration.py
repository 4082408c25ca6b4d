"""What a migration has before it, in figures: by family, package and file, and what is left to people."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import accumulate, count
from pathlib import Path
from typing import NamedTuple

from devicefix.files.documents import text_of
from devicefix.files.text import DecodeError, Source
from devicefix.model import Finding, Safety
from devicefix.report import before_after
from devicefix.report.before_after import Row
from devicefix.rules.categories import Family, family

PACKAGES = 24  # as many as can be taken in at a glance


class Kind(NamedTuple):
    """What can become of a tie: a word for it, and a few."""

    key: str
    name: str


SAFE = Kind("safe", "fixed by a rewrite")
UNSAFE = Kind("unsafe", "fixed with --unsafe-fixes")
LEFT = Kind("left", "left for people")
KINDS = (SAFE, UNSAFE, LEFT)


@dataclass(slots=True)
class Tie:
    """A finding, its number on the page, and its code as rows."""

    number: int
    finding: Finding
    rows: list[Row]

    @property
    def kind(self) -> Kind:
        """What can become of it."""
        return {None: LEFT, Safety.SAFE: SAFE, Safety.UNSAFE: UNSAFE}[self.finding.safety]

    @property
    def family(self) -> Family:
        """The family of its rule."""
        return family(self.finding.code)

    @property
    def place(self) -> str:
        """Where it is in its file."""
        place = f"{self.finding.line}:{self.finding.column}"
        return f"cell {self.finding.cell}:{place}" if self.finding.cell else place


@dataclass
class Ties:
    """Some ties, and how many of them are of each kind."""

    ties: list[Tie] = field(default_factory=list)

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many are of each kind, by its key."""
        counted = Counter(tie.kind.key for tie in self.ties)
        return {kind.key: counted[kind.key] for kind in KINDS}

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.ties)


@dataclass
class File(Ties):
    """A file with ties, and the definitions that a rewrite adds to it."""

    path: str = ""
    number: int = 0
    package: str = ""
    definitions: list[Row] = field(default_factory=list)


@dataclass
class Group(Ties):
    """Ties that have something in common: a family, a package, a rule, a message."""

    key: str = ""
    name: str = ""
    summary: str = ""
    files: int = 0


@dataclass
class Rule(Group):
    """Ties of one rule that are of one kind, and what its page says."""

    messages: list[Group] = field(default_factory=list)
    page: dict[str, str] = field(default_factory=dict)


@dataclass
class Migration(Ties):
    """Everything that the report shows of the code.

    Attributes:
        files: those with ties, by their paths.
        looked_at: how many files were looked at, and `failed` how many could not be.
    """

    files: list[File] = field(default_factory=list)
    looked_at: int = 0
    failed: int = 0

    @property
    def families(self) -> list[Group]:
        """The ties by the family of their rule."""

        def made(key: str, name: str) -> Group:
            return Group(key=key, name=name, summary=family(key).summary)

        return sorted(self._groups(lambda _, tie: tie.family[:2], made), key=lambda group: group.key)

    @property
    def packages(self) -> list[Group]:
        """The ties by package, those with most first."""
        groups = self._groups(lambda file, _: (file.package, file.package), _group)
        return sorted(groups, key=lambda group: (-group.total, group.key))

    @property
    def rules(self) -> list[Group]:
        """The ties by rule."""
        from devicefix.rules.registry import RULES

        def named(_: File, tie: Tie) -> tuple[str, str]:
            code = tie.finding.code
            return code, RULES[code].name if code in RULES else ""

        return sorted(self._groups(named, _group), key=lambda group: group.key)

    def by_rule(self, kind: Kind) -> list[Rule]:
        """The ties of one kind by rule and message, those with most first."""
        chosen = Migration()
        for file in self.files:
            ties = [tie for tie in file.ties if tie.kind == kind]
            chosen.files.append(File(ties, file.path, file.number))
        made = [_rule(group) for group in chosen.rules]
        return sorted(made, key=lambda rule: (-rule.total, rule.key))

    def amount(self, kind: Kind) -> dict[str, int]:
        """How many ties of one kind there are, in how many files, of how many rules and messages."""
        ties = [tie.finding for tie in self.ties if tie.kind == kind]
        return {
            "ties": len(ties),
            "files": sum(file.counts[kind.key] > 0 for file in self.files),
            "rules": len({finding.code for finding in ties}),
            "messages": len({(finding.code, finding.message) for finding in ties}),
        }

    @property
    def most_left(self) -> list[File]:
        """The files with something left, those with most first."""
        left = [file for file in self.files if file.counts["left"] or file.counts["unsafe"]]
        return sorted(left, key=lambda file: (-file.counts["left"], -file.counts["unsafe"], file.path))

    @property
    def half(self) -> int:
        """The fewest files that hold at least half of what is left for people."""
        left = sorted((file.counts["left"] for file in self.files), reverse=True)
        return sum(2 * before < sum(left) for before in accumulate(left, initial=0)) if sum(left) else 0

    @property
    def by_effort(self) -> list[tuple[str, int]]:
        """How many files need how much of a person."""
        left = [file.counts["left"] for file in self.files]
        reviewed = sum(bool(file.counts["unsafe"]) and not file.counts["left"] for file in self.files)
        return [
            ("the rewrite, and nothing else", left.count(0) - reviewed),
            ("a look at unsafe fixes", reviewed),
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


def migration(contents: Iterable[tuple[str, bytes, list[Finding]]], looked_at: int, failed: int) -> Migration:
    """What a look at files has found, arranged.

    Args:
        contents: the files with findings: the path, the content, and the findings, whose fixes hold
            replacements.
        looked_at: how many files were looked at.
        failed: how many could not be.
    """
    files: list[File] = []
    numbers = count(1)
    for path, data, findings in sorted(contents, key=lambda each: each[0]):
        texts = lru_cache(maxsize=None)(partial(_text, data))
        file = File(path=path, number=len(files) + 1, definitions=before_after.definitions(findings, texts))
        for finding in findings:
            file.ties.append(Tie(next(numbers), finding, before_after.rows(finding, texts)))
        files.append(file)
    for file, package in zip(files, _packages([file.path for file in files]), strict=True):
        file.package = package
    return Migration([tie for file in files for tie in file.ties], files, looked_at, failed)


def _text(data: bytes, cell: int | None) -> Source | None:
    """The text of a file, or of a cell of a notebook; None where there is none that can be read."""
    try:
        return Source(data if cell is None else text_of(data, cell).encode())
    except DecodeError:
        return None


def _packages(paths: list[str]) -> list[str]:
    """The package of each file: its folder, but no deeper than gives a number that can be taken in."""
    folders = [Path(os.path.abspath(path)).parent for path in paths]
    try:
        above = len(Path(os.path.commonpath(folders)).parts)
    except ValueError:  # none, or on several drives
        above = 0
    within = [folder.parts[above:] for folder in folders]
    depths = range(max(map(len, within), default=0), 1, -1)
    depth = next((each for each in depths if len({parts[:each] for parts in within}) <= PACKAGES), 1)
    return ["/".join(parts[:depth]) or "." for parts in within]


def _group(key: str, name: str) -> Group:
    return Group(key=key, name=name)


def _rule(group: Group) -> Rule:
    """A rule with its messages and its page."""
    from devicefix.rules.registry import RULES

    messages: dict[str, Group] = {}
    for tie in group.ties:
        text = tie.finding.message
        messages.setdefault(text, Group(key=text, name=text)).ties.append(tie)
    found = sorted(messages.values(), key=lambda each: (-each.total, each.key))
    rule = RULES.get(group.key)
    summary = rule.summary if rule else ""
    page = _page(rule.__doc__ or "") if rule else {}
    return Rule(group.ties, group.key, group.name, summary, group.files, found, page)


def _page(docstring: str) -> dict[str, str]:
    """The sections of a rule's page, in Markdown, by their titles."""
    from inspect import cleandoc

    sections = f"\n{cleandoc(docstring)}".split("\n## ")[1:]
    return {title.strip(): text.strip() for title, _, text in (each.partition("\n") for each in sections)}
