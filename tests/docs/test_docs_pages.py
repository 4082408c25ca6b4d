"""Tests of docs/for-ruff-users.md and docs/comparison.md: what they say of options, keys and findings."""

from __future__ import annotations

import re

import click
import pytest
from helpers import ROOT, Cli, analyze

from devicefix.cli import main

RUFF = (ROOT / "docs" / "for-ruff-users.md").read_text(encoding="utf-8")
CONFIGURATION = RUFF.partition("## Configuration")[2].partition("## Fixes")[0]
OTHERS = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")


def names(pattern: str, text: str) -> list[str]:
    """Return the names in inline code that a pattern of a table's row finds."""
    return [name for cell in re.findall(pattern, text, re.M) for name in re.findall(r"`([^`\s]+)`", cell)]


MISSING_OPTIONS = names(r"^\| (`--[^|]+) \|", RUFF.partition("lacks these options")[2].partition("## ")[0])
MISSING_KEYS = names(r"^\| ([^|]+) \| none", CONFIGURATION)
SAME = names(r"^\| ([^|]+) \| the same", CONFIGURATION)
SAME_OPTIONS = names(r"same options: ([^|]+) \|", RUFF) + [name for name in SAME if name.startswith("--")]
SAME_KEYS = [name for name in SAME if name.islower() and not name.startswith("--")]


def options_of_check() -> set[str]:
    command = main.get_command(click.Context(main), "check")
    assert command is not None
    return {option for parameter in command.params for option in parameter.opts}


def test_the_tables_are_read() -> None:
    assert len(MISSING_OPTIONS) == 8
    assert len(SAME_OPTIONS) == 11
    assert len(MISSING_KEYS) == 8
    assert len(SAME_KEYS) == 12


def test_options_are_those_of_check() -> None:
    assert set(SAME_OPTIONS) <= options_of_check()
    assert not set(MISSING_OPTIONS) & options_of_check()


def test_the_rest_of_ruff_does_not_exist(cli: Cli) -> None:
    (sentence,) = re.findall(r"Other parts of ruff[^.]+", RUFF)
    command, key = names("(.+)", sentence.replace("ruff ", ""))
    assert cli(command).exit_code == cli("config", key).exit_code == 2


def test_keys_are_those_of_the_configuration(cli: Cli) -> None:
    known = set(re.findall(r"^([a-z-]+) = ", cli("config", "--isolated").stdout, re.M))
    assert set(SAME_KEYS) <= known
    assert not set(MISSING_KEYS) & known


@pytest.mark.parametrize(
    ("comment", "suppresses"),
    [
        ("# devicefix: skip-file", True),
        ("# ruff: noqa", False),
        ("# flake8: noqa", False),
        ("# ruff: noqa: DF101", False),
        ("# ruff: file-ignore[DF101]", False),
        ("# ruff: disable[DF101]", False),
    ],
)
def test_comments_for_a_file(comment: str, suppresses: bool) -> None:
    findings = analyze(f"{comment}\nimport torch\n\nx = torch.zeros(1).cuda()\n").findings
    assert bool(findings) is not suppresses


def test_the_program_has_seven_findings_and_fixes() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", OTHERS, re.S)
    result = analyze(program, fix=True)
    assert len(result.findings) == 7
    assert result.output is not None
    assert not analyze(result.output).findings
