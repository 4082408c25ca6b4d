"""Facts are complete when they are asked for: walking everything at first gives the same findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts import Tree
from devicefix.facts.project import Project, ProjectFile
from devicefix.model import Finding
from devicefix.rules.registry import RULES

ROOT = Path(__file__).parents[2]
FIXTURES = sorted((ROOT / "fixtures").rglob("*.py"))
SOURCES = sorted((ROOT / "devicefix").rglob("*.py"))
EXAMPLES = [example.before for rule in RULES.values() for example in (*rule.INVALID, *rule.VALID)]


def found(data: bytes, settings: Settings) -> list[Finding]:
    """Return the findings of a module, with the edits of their fixes applied to its text."""
    project = Project([ProjectFile(data, "x.py")])
    return [finding.portable() for finding in check_file(data, "x.py", settings, project).findings]


@pytest.mark.parametrize(
    ("modules", "target"),
    [
        ("fixtures", "accelerator"),
        ("some examples", "cuda"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("fixtures", "cuda"),
                ("examples", "cuda"),
                ("examples", "accelerator"),
                ("sources", "cuda"),
                ("sources", "accelerator"),
            )
        ),
    ],
)
def test_a_full_walk_finds_the_same(monkeypatch: pytest.MonkeyPatch, modules: str, target: str) -> None:
    data = {
        "fixtures": [path.read_bytes() for path in FIXTURES],
        "sources": [path.read_bytes() for path in SOURCES],
        "examples": [code.encode() for code in EXAMPLES],
        "some examples": [code.encode() for code in EXAMPLES[::5]],
    }[modules]
    settings = replace(Settings(), select=("DF",), target=target)
    lazy = [found(module, settings) for module in data]
    monkeypatch.setattr(Tree, "LAZY", False)
    full = [found(module, settings) for module in data]
    assert any(lazy)
    assert lazy == full
