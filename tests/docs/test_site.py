"""Tests of the documentation: the site builds, and every command and snippet in it works."""

from __future__ import annotations

import ast
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
from helpers import ROOT, Cli, Git, ProjectFolder
from running import verify_in_forks

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
TEST = """\
import torch


def test_sum():
    assert torch.ones(2).cuda().sum() == 2
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


PACKAGES = ("docs", "skills")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for name in PACKAGES for page in sorted((ROOT / name).rglob("*.md"))),
]


class Block(NamedTuple):
    """A fenced block of code in a page."""

    page: Path
    line: int
    language: str
    text: str


def blocks() -> Iterator[Block]:
    """Yield the fenced blocks of code in the pages."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            lines = (line.removeprefix(match["indent"]) for line in match["text"].splitlines(keepends=True))
            yield Block(page, text.count("\n", 0, match.start()) + 2, match["language"], "".join(lines))


BLOCKS = list(blocks())
WORKFLOW = next(each.text for each in BLOCKS if each.page.name == "ci.md" and each.language == "yaml")


@pytest.fixture
def tied_project(project: ProjectFolder, git: Git, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a small program tied to CUDA, in a git repository with a branch `main`."""
    files = {"src/net.py": NETWORK, "train.py": TRAIN, "README.md": PAGE, "config.yaml": "device: cuda\n"}
    files |= {"third_party/model.py": NETWORK, "ci/devicefix.toml": 'ignore = ["DF702"]\n'}
    files |= {"package/train.py": TRAIN, "tests/test_net.py": TEST}
    project.write({**files, "demo.ipynb": json.dumps(NOTEBOOK, indent=1) + "\n"})
    git.commit_all()
    git("update-ref", "refs/remotes/origin/main", "main")
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


# -- commands ------------------------------------------------------------------------------------------

INLINE = re.compile(
    r"`((?:devicefix|python -m|mkdocs|pre-commit|nox -s) [^`]+)`|^ {4,}((?:devicefix|pip|python3?) [^\n]+)$",
    re.M,
)

# Commands that no test runs as they are, and why.
NOT_RUN = {
    r"(python -m )?(pip|pipx|uv tool) install ": "needs a network; see tests/config/test_installation.py",
    r"python3 -m venv ": "needs a network; .ci/run does the same",
    r"git (clone|push|tag) ": "needs the repository on GitHub",
    r"pytest|nox -s|pre-commit install": "runs in this checkout, and may take long",
    r"python (scripts|benchmarks)/": "changes this checkout or downloads programs; their tests run them",
    r"mkdocs serve": "runs until it is stopped; test_the_site_builds builds the pages",
    r"devicefix rule EX101": "needs the example; tests/rules/test_plugins.py installs it",
    r"devicefix check --executor ": "needs a cluster; tests/runner/test_executor.py starts one",
}

# The options of all commands.
OPTIONS = {
    option
    for name in COMMANDS
    for each in (main.get_command(click.Context(main), name) or main).params
    for option in (*each.opts, *each.secondary_opts)
}

# What pages write where the reader's own words belong.
PLACEHOLDERS = {"PATH": "src", "CODE": "DF101", "KEY": "select", "FILE": "train.py"}

BASELINE = "--baseline devicefix-baseline.json"

# What a command needs, and the command that makes it.
BEFORE = {
    "--since start.json": "devicefix report -o start.json .",
    "report --coverage-file": "devicefix verify --coverage-file runs.json train.py",
    f"{BASELINE} .": f"devicefix check {BASELINE} --write-baseline .",
}


IDENTITY = {
    f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}
ENVIRONMENT = {**IDENTITY, "GITHUB_BASE_REF": "main"}

# The commands that need a shell or processes of their own.
PROCESSES = re.compile(r"(?!devicefix )|devicefix (playground|run|server)|.*([$>]| -[cm] | --timeout )")

# The commands that end with 1 if they find something.
FINDS = re.compile(r" (check|rewrite)\b|flake8| migrate(?!.* --run)")


def commands() -> Iterator[tuple[str, Path]]:
    """Yield each command of the pages: of code blocks, of workflows, and in the text."""
    for page, _, language, text in BLOCKS:
        lines = text.replace("\\\n", " ").splitlines()
        if language == "bash":
            yield from ((line, page) for line in lines if line.strip() and not line.startswith("#"))
        elif language == "console":
            yield from ((line[2:], page) for line in lines if line.startswith("$ "))
        elif language == "yaml":
            yield from (
                (match, page) for match in re.findall(r"^ *- (?:run: )?((?:devicefix|pip) .*)", text, re.M)
            )
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        yield from ((inline or block, page) for inline, block in INLINE.findall(text))


COMMANDS_OF_PAGES = {command.partition("  # ")[0].strip(): page for command, page in commands()}
TO_RUN = [each for each in COMMANDS_OF_PAGES if not any(re.match(pattern, each) for pattern in NOT_RUN)]


@pytest.mark.slow
@pytest.mark.parametrize("command", TO_RUN)
def test_commands_of_the_pages_work(
    command: str, tied_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a command: it ends with 0, or with 1 if it is one that ends so for findings."""
    if re.search("verify|migrate|run|report", command):
        pytest.importorskip("torch")
        verify_in_forks(monkeypatch)
    monkeypatch.chdir(tied_project)
    known = re.sub(r"\b[A-Z]{3,}\b", lambda word: PLACEHOLDERS.get(word[0], word[0]), command)
    for part, needed in BEFORE.items():
        if part in command and needed != command:
            run(needed, tied_project)
    done = run(known, tied_project)
    if done.returncode == 2:  # the text names a command or an option without its argument
        assert re.search(r"Missing argument|requires an argument|^Commands:", done.stderr, re.M), done.stderr
    else:
        assert done.returncode in (0, bool(FINDS.search(command))), done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.needs("yaml")
def test_the_workflow_annotates_only_what_a_pull_request_adds(tied_project: Path, git: Git) -> None:
    (job,) = __import__("yaml").safe_load(WORKFLOW)["jobs"].values()
    assert {"uses": "actions/checkout@v4", "with": {"fetch-depth": 0}} in job["steps"]
    git("switch", "-q", "-c", "change")
    with (tied_project / "train.py").open("a") as file:
        file.write("torch.cuda.synchronize()\n")
    git.commit_all("change")
    install, check = (step["run"] for step in job["steps"] if "run" in step)
    assert install == "pip install git+https://github.com/devicefix/devicefix"
    done = run(check, tied_project)
    assert done.returncode == 1
    assert re.findall(r"^::error.*?file=.*?/(\w+\.py),line=(\d+)", done.stdout, re.M) == [("train.py", "6")]


@pytest.mark.needs("check_jsonschema")
def test_the_workflow_is_valid(tmp_path: Path) -> None:
    (tmp_path / "devicefix.yml").write_text(WORKFLOW)
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run(
        [*check, "devicefix.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in the current folder; one that serves a page is ended after a few seconds."""
    if not PROCESSES.match(command):
        called = Cli()(*shlex.split(command)[1:], env=ENVIRONMENT)
        return subprocess.CompletedProcess(command, called.exit_code, called.stdout, called.stderr)
    if command.startswith("devicefix playground"):
        # --foreground: else the signal comes twice, and the second can end a program that is about to end
        command = f"timeout --foreground --preserve-status --signal INT 5 {command}"
    return subprocess.run(
        ["bash", "-c", command],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **ENVIRONMENT},
    )


def test_each_command_is_run_or_has_a_reason() -> None:
    assert len(TO_RUN) > 80
    unused = [each for each in NOT_RUN if not any(re.match(each, command) for command in COMMANDS_OF_PAGES)]
    assert not unused
    assert all(any(part in command for command in TO_RUN) for part in BEFORE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_options_in_the_text_exist(page: Path) -> None:
    """The tables of docs/for-ruff-users.md name options of ruff, which test_docs_pages.py tests."""
    text = re.sub(r"^\| `-.*", "", FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.M)
    codes = re.findall(
        r"`((?:--|devicefix )[^`]+?)(?: train\.py [^`]*)?`", text
    )  # without the program's options
    options = {option for code in codes for option in re.findall(r"(?<!\S)--[a-z-]+", code)}
    assert options - OPTIONS == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_extras_and_sessions_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    extras, sessions = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "noxfile.py")
    )
    wanted = ",".join(re.findall(r"(?:devicefix|\.)\[([\w,]+)\]", text)).split(",")
    assert [extra for extra in wanted if extra and f"\n{extra} = [" not in extras] == []
    named = " ".join(re.findall(r"nox -s ([a-z -]+?)(?: --|`|$)", text, re.M)).split()
    assert [name for name in named if f"\ndef {name.replace('-', '_')}(" not in sessions] == []


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
