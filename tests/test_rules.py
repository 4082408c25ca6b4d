"""Every rule by its own examples."""

from __future__ import annotations

import pytest

from devicefix.config import TARGETS, Settings
from devicefix.engine import examine, matters, run
from devicefix.facts import Facts
from devicefix.finding import Result
from devicefix.project import Project
from devicefix.rule import Changed, Rule
from devicefix.rules import RULES
from devicefix.summary import summarize

SECTIONS = ("## What it does", "## Why it matters", "## Example", "## Use instead", "## Fix safety")
MATCHES = [pytest.param(rule, example, id=f"{code}-{i}")
           for code, rule in RULES.items() for i, example in enumerate(rule.MATCHES)]  # fmt: skip
LEAVES = [pytest.param(rule, example, id=f"{code}-{i}")
          for code, rule in RULES.items() for i, example in enumerate(rule.LEAVES)]  # fmt: skip


def rewrite(text: str, settings: Settings | None = None) -> Result:
    data = text.encode()
    settings = settings or Settings(fix=True)
    return run(data, "module.py", settings, Project.of([summarize(data, "module.py")]))


@pytest.mark.parametrize(("rule", "example"), MATCHES)
def test_matches(rule: type[Rule], example: Changed) -> None:
    settings = Settings(
        fix=True,
        unsafe_fixes=example.unsafe,
        select=() if rule.default else ("DF", rule.code),
        target=rule.targets[0],
    )
    result = rewrite(example.before, settings)
    assert rule.code in {finding.code for finding in result.findings}
    assert (result.output.decode() if result.output else None) == example.after


@pytest.mark.parametrize(("rule", "example"), MATCHES)
def test_second_run_changes_nothing(rule: type[Rule], example: Changed) -> None:
    if example.after is not None:
        assert rewrite(example.after, Settings(fix=True, target=rule.targets[0])).output is None


@pytest.mark.parametrize(("rule", "example"), LEAVES)
def test_leaves(rule: type[Rule], example: str) -> None:
    settings = Settings(select=(rule.code,), target=rule.targets[0])
    assert rule.code not in {finding.code for finding in rewrite(example, settings).findings}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_what_has_findings_passes_the_gate(rule: type[Rule], unsafe: bool, target: str) -> None:
    """Also once it has been rewritten: what remains is then found, and fixed, by the next look."""
    settings = Settings(select=("DF",), fix=True, unsafe_fixes=unsafe, target=target)
    for data in (text.encode() for text in _examples(rule)):
        after: bytes | None = data
        while after is not None:
            data = after
            project = Project.of([summarize(data, "module.py")])
            result = examine(Facts.read(data), "module.py", settings, project)
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
