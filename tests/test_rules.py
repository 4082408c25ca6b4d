"""Every rule by its own examples."""

from __future__ import annotations

import pytest

from devicefix.config.settings import Settings
from devicefix.config.values import TARGETS
from devicefix.engine.check import matters
from devicefix.engine.fix import recheck
from devicefix.facts.exports import summarize
from devicefix.facts.project import Project
from devicefix.rules.base import Rule
from devicefix.rules.registry import RULES
from devicefix.testing import Example, examples

SECTIONS = ("## What it does", "## Why it matters", "## Example", "## Use instead", "## Fix safety")


@pytest.mark.parametrize("example", examples(*RULES.values()), ids=str)
def test_example(example: Example) -> None:
    example.check()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("select", [(), ("DF",)])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_what_has_findings_passes_the_gate(
    rule: type[Rule], select: tuple[str, ...], unsafe: bool, target: str
) -> None:
    """Also once it has been rewritten: what remains is then found, and fixed, by the next look."""
    settings = Settings(select=select, fix=True, unsafe_fixes=unsafe, target=target)
    for data in (text.encode() for text in _examples(rule)):
        after: bytes | None = data
        while after is not None:
            data = after
            project = Project.of([summarize(data, "module.py")])
            result = recheck(data, "module.py", settings, project)
            assert matters(data, settings) or not result.findings, data.decode()
            after = result.output


def _examples(rule: type[Rule]) -> list[str]:
    after = [each.after for each in rule.MATCHES if each.after]
    parsed = [each.before for each in rule.MATCHES if rule.code != "DF901"]
    return [*parsed, *after, *rule.LEAVES]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_is_documented(rule: type[Rule]) -> None:
    page = rule.__doc__ or ""
    positions = [page.index(section) for section in SECTIONS]
    assert positions == sorted(positions)
    assert rule.MATCHES or rule.code in ("DF901", "DF905")  # these look at no module
    assert rule.summary and not rule.summary.endswith(".")
