"""The ties of the migration report, and how they can be fixed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from inspect import cleandoc
from typing import NamedTuple

from devicefix.model import Finding, Safety
from devicefix.report.side_by_side import Row
from devicefix.report.wording import place
from devicefix.rules.categories import Category, category
from devicefix.rules.registry import RULES


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
        found = ((tie.file, tie.finding) for tie in self.ties)
        spans = ((file, each.cell, range(each.line, each.end_line + 1)) for file, each in found)
        return len({(file, cell, line) for file, cell, lines in spans for line in lines})

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


def rule_of(group: Group) -> Rule:
    """Return the rule of a group of ties, with its messages and its page."""
    messages: dict[str, Group] = {}
    for tie in group.ties:
        text = tie.finding.message
        messages.setdefault(text, Group(key=text, name=text)).ties.append(tie)
    found = sorted(messages.values(), key=lambda each: (-each.total, each.key))
    rule = RULES[group.key]
    sections = _sections(rule.__doc__ or "")
    return Rule(group.ties, group.key, rule.name, rule.summary, group.files, found, sections)


def _sections(docstring: str) -> dict[str, str]:
    """Return the sections of a rule's page, as Markdown, by title."""
    sections = (section.partition("\n") for section in f"\n{cleandoc(docstring)}".split("\n## ")[1:])
    return {title.strip(): text.strip() for title, _, text in sections}
