"""Tests of the pages that docs/hooks.py generates."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from helpers import ROOT

from devicefix.cli import COMMANDS
from devicefix.devices.counterparts import FUNCTIONS
from devicefix.rules.base import Rule
from devicefix.rules.registry import RULES

pytest.importorskip("mkdocs")
sys.path.insert(0, str(ROOT / "docs"))
hooks: Any = __import__("hooks")
PAGES = dict(hooks.pages())
LONGEST = 350  # words


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_has_a_short_page_with_one_example(rule: type[Rule]) -> None:
    page = PAGES[f"rules/{rule.code}.md"]
    assert len(page.split()) <= LONGEST
    assert page.count("## Example\n```") == 1
    assert ("```diff" in page) is ("## Use instead" not in page)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_source_of_a_rule_holds_its_examples(rule: type[Rule]) -> None:
    source = ROOT / hooks.source(rule)
    files = list(source.glob("*.py")) if source.is_dir() else [source]
    assert any(f"class {rule.__name__}(Rule)" in file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_addresses_of_the_site_in_a_rule_exist(rule: type[Rule]) -> None:
    for page in re.findall(r"https://devicefix\.github\.io/devicefix/([\w/-]+)/", rule.__doc__ or ""):
        assert (ROOT / "docs" / f"{page}.md").exists() or f"{page}.md" in PAGES


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_of_a_command_are_on_the_page_of_commands(name: str) -> None:
    sections = dict(section.split("\n", 1) for section in PAGES["commands.md"].split("\n## ")[1:])
    others = PAGES["commands.md"] if name == "config" else sections["Shared options"]
    text = sections[name] + others  # `config` has the options of all commands
    for names, _ in hooks.options_of(hooks.context_of(name)):
        assert re.findall(r"--?[\w-]+", names)[-1] in text or re.findall(r"--?[\w-]+", names)[0] in text


def test_an_option_of_several_commands_is_explained_once() -> None:
    assert PAGES["commands.md"].count("`--isolated`") == 1
    assert PAGES["commands.md"].count("[`--select`](configuration.md#select)") == 1


@pytest.mark.parametrize("name", [name for name, each in FUNCTIONS.items() if each.counterpart])
def test_a_function_has_a_row_with_its_counterpart(name: str) -> None:
    rows = [
        row for row in PAGES["counterparts.md"].splitlines() if row.startswith("| ") and f"`{name}`" in row
    ]
    counterpart = FUNCTIONS[name].counterpart
    assert counterpart is not None and any(f"`torch.{counterpart.name}`" in row for row in rows)
