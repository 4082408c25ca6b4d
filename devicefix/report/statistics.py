"""How much each rule has found, as `ruff check --statistics` tells it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import click

from devicefix.model import Safety
from devicefix.report.checked import Checked


@dataclass(frozen=True, slots=True)
class Count:
    """What a rule has found, and how much of it has a safe fix."""

    code: str
    name: str
    count: int
    fixable_count: int


def text(checked: Checked) -> Iterator[str]:
    """A line for each rule, in pieces."""
    found = counts(checked)
    number = max((len(str(each.count)) for each in found), default=0)
    code = max((len(each.code) for each in found), default=0)
    any_fixable = any(each.fixable_count for each in found)
    for each in found:
        shown = click.style(f"{each.code:{code}}", fg="red", bold=True)
        yield f"{each.count:{number}}\t{shown}\t{_mark(each) if any_fixable else ''}{each.name}\n"


def as_json(checked: Checked) -> Iterator[str]:
    """An array with an object for each rule, in pieces."""
    found = [
        {
            "code": each.code,
            "name": each.name,
            "count": each.count,
            "fixable": each.count == each.fixable_count,
            "fixable_count": each.fixable_count,
        }
        for each in counts(checked)
    ]
    yield json.dumps(found, indent=2) + "\n"


def counts(checked: Checked) -> list[Count]:
    """What each rule has found, most first."""
    from devicefix.rules.registry import RULES

    findings = [finding for outcome in checked.outcomes for finding in outcome.result.findings]
    fixable = Counter(finding.code for finding in findings if finding.safety is Safety.SAFE)
    found = [
        Count(code, RULES[code].name if code in RULES else code, count, fixable[code])
        for code, count in Counter(finding.code for finding in findings).items()
    ]
    return sorted(found, key=lambda each: (-each.count, each.code))


def _mark(count: Count) -> str:
    """Whether all of it has a safe fix, or a part."""
    if not count.fixable_count:
        return "[ ] "
    return click.style("[*] " if count.fixable_count == count.count else "[-] ", fg="cyan")
