"""Tests of the documentation: the site builds, and every command and snippet in it works."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from helpers import ROOT, Git, ProjectFolder

from devicefix.cli import COMMANDS, main
from devicefix.config.load import load
from devicefix.rules import known_codes

FENCE = re.compile(
    r"^(?P<indent> *)(?P<marks>```+)(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)(?P=marks)$",
    re.M | re.S,
)

NETWORK = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x.cuda())
"""
TRAIN = """\
import torch
from src.net import Net

net = Net().cuda()
print(net(torch.ones(1, 2)).sum().item() * 0)
"""
NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [],
         "source": ["import torch\n", "x = torch.ones(2).cuda()\n"]},
    ],
    "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}  # fmt: skip
PAGE = "# Demo\n\n```python\nimport torch\n\nx = torch.ones(2).cuda()\n```\n"


class Block(NamedTuple):
    """A fenced block of code in a page."""

    page: Path
    line: int
    language: str
    text: str


def blocks() -> Iterator[Block]:
    """Yield the fenced blocks of code in the README and the documentation."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            lines = (line.removeprefix(match["indent"]) for line in match["text"].splitlines(keepends=True))
            yield Block(page, text.count("\n", 0, match.start()) + 2, match["language"], "".join(lines))


BLOCKS = list(blocks())
PAGES = sorted({block.page for block in BLOCKS if block.language == "bash"})


@pytest.fixture
def tied_project(project: ProjectFolder, git: Git, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a small program tied to CUDA, in a git repository with a branch `main`."""
    files = {"src/net.py": NETWORK, "train.py": TRAIN, "README.md": PAGE, "config.yaml": "device: cuda\n"}
    files |= {"third_party/model.py": NETWORK, "ci/devicefix.toml": 'ignore = ["DF702"]\n'}
    project.write({**files, "demo.ipynb": json.dumps(NOTEBOOK, indent=1) + "\n"})
    git.commit_all()
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return project.path


@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path / "site")],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site" / "rules" / "DF101" / "index.html").read_text(encoding="utf-8")
    assert "Why it matters" in page


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_work(page: Path, tied_project: Path) -> None:
    """Run the commands of a page in order: each exits with 0, or with 1 for findings."""
    for command in commands(page):
        words = shlex.split(command, comments=True)
        if "install" in words[:3]:
            assert known_extras(command)
            continue
        if command in ELSEWHERE:
            assert ELSEWHERE[command].exists()
            continue
        if words[:2] == ["nox", "-s"]:
            sessions = (ROOT / "noxfile.py").read_text(encoding="utf-8")
            assert all(f"\ndef {name.replace('-', '_')}(" in sessions for name in words[2:]), command
            continue
        folder = ROOT if words[0] == "pytest" else tied_project
        known = command.replace("DF123", "DF101")  # the new rule of the pages does not exist
        done = subprocess.run(
            ["bash", "-c", known],
            check=False,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode in (0, 1), f"$ {command}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr


def commands(page: Path) -> Iterator[str]:
    """Yield the commands of a page."""
    for block in BLOCKS:
        if block.page == page and block.language == "bash":
            for line in block.text.replace("\\\n", " ").splitlines():
                if line.strip() and not line.startswith("#"):
                    yield line.strip()


def known_extras(command: str) -> bool:
    """Return whether all extras of devicefix that a command installs exist."""
    known = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = re.findall(r"devicefix\[([\w,]+)\]", command)
    return all(f"\n{extra} = [" in known for names in wanted for extra in names.split(","))


def inline_commands() -> Iterator[tuple[str, str]]:
    """Yield the page and the text of each command in inline code and in indented blocks."""
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        found = re.findall(r"`(devicefix [^`]+)`|^ {4,}(devicefix [^\n]+)$", text, re.M)
        yield from ((page.name, inline or block) for inline, block in found)


INLINE = sorted({(page, command) for page, command in inline_commands() if command.split()[1] in COMMANDS})


@pytest.mark.parametrize(("page", "command"), INLINE)
def test_commands_in_the_text_have_known_options(page: str, command: str) -> None:
    _, name, *arguments = shlex.split(command, comments=True)
    subcommand = main.get_command(click.Context(main), name)
    assert subcommand is not None, page
    context = click.Context(subcommand, **subcommand.context_settings)
    with contextlib.suppress(click.BadOptionUsage):  # the text names an option without its value
        subcommand.make_parser(context).parse_args(arguments)


def test_options_in_the_text_are_read() -> None:
    assert len(INLINE) > 40
    assert any("--" in command for _, command in INLINE)


# Commands that need more than a folder, and the tests that run them.
ELSEWHERE: dict[str, Path] = {
    "pytest": ROOT / "tests" / "rules" / "test_plugins.py",
    "devicefix rule EX101": ROOT / "tests" / "rules" / "test_plugins.py",
    "devicefix check --executor dask://127.0.0.1:8786 .": ROOT / "tests" / "runner" / "test_executor.py",
}


SNIPPETS = [
    pytest.param(block, id=f"{block.page.name}:{block.line}") for block in BLOCKS if block.language != "bash"
]


@pytest.mark.parametrize("block", SNIPPETS)
def test_snippets_are_sound(block: Block, tmp_path: Path) -> None:
    """Check that code parses, that settings exist, and that data has the declared format."""
    if block.language == "python":
        ast.parse(block.text)
    elif block.language == "toml" and "tool.devicefix" in block.text:
        file = tmp_path / "pyproject.toml"
        file.write_text(block.text)
        load(file, known_codes)
    elif block.language == "json":
        json.loads(block.text)
    elif block.language in ("yaml", "yml"):
        yaml = pytest.importorskip("yaml")
        assert yaml.safe_load(block.text)
    else:
        assert block.language, f"{block.page}:{block.line}: add a language, or `text`"
