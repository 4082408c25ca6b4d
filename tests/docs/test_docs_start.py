"""Tests of docs/index.md: the commands print what the page shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import ROOT, Cli

PAGE = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(python|console|diff)\n(.*?)^```", PAGE, re.M | re.S)
(PROGRAM,) = (text for language, text in BLOCKS if language == "python")
(PATCH,) = (text for language, text in BLOCKS if language == "diff")
SHOWN = {
    command: output
    for language, text in BLOCKS
    if language == "console"
    for command, output in re.findall(r"\$ devicefix (.*)\n((?:(?!\$ ).*\n)*)", text)
}

Run = Callable[[str], str]


@pytest.fixture
def run(tmp_path: Path, cli: Cli) -> Run:
    """Return a function that runs a command on the program of the page, and returns its standard output."""
    (tmp_path / "train.py").write_text(PROGRAM)

    def run(command: str) -> str:
        name, *arguments = command.split()
        return cli(name, *arguments).stdout

    return run


def test_check_prints_what_the_page_shows(run: Run) -> None:
    command = "check --output-format concise train.py"
    assert run(command) == SHOWN[command]


def test_the_fixes_are_those_that_the_page_shows(run: Run, tmp_path: Path) -> None:
    shown = run("check --diff train.py")
    assert [line.rstrip() for line in shown.splitlines()] == PATCH.splitlines()
    assert run("check --fix train.py") == "Found 3 findings (3 fixed, 0 remaining).\n"
    assert run("check train.py") == "Nothing found in 1 file.\n"


@pytest.mark.slow
def test_verify_prints_what_the_page_shows(run: Run) -> None:
    pytest.importorskip("torch")
    shown, page = (
        re.sub(r"in [\d.]+ s( \([^)]*\))?", "in 1.0 s", text)
        for text in (run("verify train.py"), SHOWN["verify train.py"])
    )
    assert shown == page


def test_every_command_of_the_page_is_tested() -> None:
    assert set(SHOWN) == {"check --output-format concise train.py", "verify train.py"}
