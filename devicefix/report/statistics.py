"""The number of findings of each rule, laid out as in `ruff check --statistics`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import click

from devicefix.report.checked import Checked
from devicefix.rules.registry import RULES


@dataclass(frozen=True, slots=True)
class Count:
    """The number of findings of a rule, whether `--fix` would fix them all, and how many it would fix."""

    code: str
    name: str
    count: int
    fixable: bool
    fixable_count: int


def text(checked: Checked) -> Iterator[str]:
    """Yield a line for each rule."""
    found = counts(checked)
    count_width = max((len(str(rule.count)) for rule in found), default=0)
    code_width = max((len(rule.code) for rule in found), default=0)
    any_fixable = any(rule.fixable_count for rule in found)
    for rule in found:
        code = click.style(f"{rule.code:{code_width}}", fg="red", bold=True)
        yield f"{rule.count:{count_width}}\t{code}\t{_mark(rule) if any_fixable else ''}{rule.name}\n"


def as_json(checked: Checked) -> Iterator[str]:
    """Yield a JSON array with an object for each rule."""
    yield json.dumps(list(map(asdict, counts(checked))), indent=2) + "\n"


def counts(checked: Checked) -> list[Count]:
    """Return the count of each rule, highest first."""
    places = [(outcome.path, finding) for outcome in checked.outcomes for finding in outcome.result.findings]
    fixable = Counter(finding.code for path, finding in places if checked.is_fixable(path, finding))
    counts = Counter(finding.code for _, finding in places).items()
    numbers = ((code, count, fixable[code]) for code, count in counts)
    found = [Count(code, RULES[code].name, count, count == fixed, fixed) for code, count, fixed in numbers]
    return sorted(found, key=lambda rule: (-rule.count, rule.code))


def _mark(count: Count) -> str:
    """Return a mark for whether all, some or none of the findings would be fixed."""
    if not count.fixable_count:
        return "[ ] "
    return click.style("[*] " if count.fixable else "[-] ", fg="cyan")
