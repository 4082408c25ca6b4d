"""Rules by their own examples, their documentation, their precedence and how they visit nodes."""

from __future__ import annotations

import pytest

from devicefix.config.settings import TARGETS, Settings
from devicefix.engine.check import examine, matters
from devicefix.facts import Facts
from devicefix.facts.exports import summarize
from devicefix.facts.project import Project
from devicefix.rules.base import Rule
from devicefix.rules.registry import RULES
from devicefix.testing import Case, examples

SECTIONS = ("## What it does", "## Why it matters", "## Example", "## Use instead", "## Fix safety")
CASES = examples(*RULES.values())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_example(case: Case) -> None:
    case.check()


def test_no_example_is_lost() -> None:
    assert sum(not case.valid for case in CASES) >= 178
    assert sum(case.valid for case in CASES) >= 155


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("select", [(), ("DF",)])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_what_has_findings_passes_the_prefilter(
    rule: type[Rule], select: tuple[str, ...], unsafe: bool, target: str
) -> None:
    """Rewritten code does so, too: the next run finds and fixes what remains."""
    settings = Settings(select=select, fix=True, unsafe_fixes=unsafe, target=target)
    for data in (text.encode() for text in _texts(rule)):
        after: bytes | None = data
        while after is not None:
            data = after
            project = Project.of([summarize(data, "module.py")])
            result = examine(Facts.read(data), "module.py", settings, project)
            assert matters(data, settings) or not result.findings, data.decode()
            after = result.output


def _texts(rule: type[Rule]) -> list[str]:
    before = [example.before for example in (*rule.INVALID, *rule.VALID)]
    return before + [example.after for example in rule.INVALID if example.after]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_is_documented(rule: type[Rule]) -> None:
    page = rule.__doc__ or ""
    positions = [page.index(section) for section in SECTIONS]
    assert positions == sorted(positions)
    assert rule.INVALID or rule.code in ("DF901", "DF905")  # these check other files than modules
    assert rule.summary
    assert not rule.summary.endswith(".")


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_examples_have_names(rule: type[Rule]) -> None:
    names = [example.name for example in (*rule.INVALID, *rule.VALID)]
    assert all(names)
    assert not rule.MATCHES
    assert not rule.LEAVES
