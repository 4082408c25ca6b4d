"""`devicefix check --diff-base`, with real git repositories."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import Cli, CliResult, Git

from devicefix.model import Finding
from devicefix.model import Result as Found
from devicefix.runner.git import Since

pytestmark = pytest.mark.usefixtures("repository")

TIED = "import torch\n\nx = torch.ones(2).cuda()\n"

Check = Callable[..., CliResult]
Lines = Callable[..., list[str]]


@pytest.fixture
def repository(git: Git, tmp_path: Path) -> Git:
    """Return git in a repository with one commit on main, and the branch `work` checked out."""
    (tmp_path / "old.py").write_text(TIED + "y = x.cuda()\n")
    (tmp_path / "renamed.py").write_text(TIED + "# 1\n# 2\n# 3\n# 4\n")
    git.commit_all()
    git("checkout", "-qb", "work")
    return git


@pytest.fixture
def check(cli: Cli) -> Check:
    """Return `devicefix check --diff-base` in the repository."""
    return lambda *arguments, **options: cli(
        "check", "-q", "--no-cache", "--diff-base", *arguments, **options
    )


@pytest.fixture
def lines(check: Check) -> Lines:
    """Return a function that returns the path and line of each finding."""

    def lines(*arguments: str, **options: Any) -> list[str]:
        result = check(*arguments, **options)
        assert result.exit_code == (1 if result.stdout else 0), result.output
        return [":".join(line.split(":")[:2]) for line in result.stdout.splitlines() if ": DF" in line]

    return lines


def test_only_findings_on_changed_lines(repository: Git, lines: Lines, tmp_path: Path) -> None:
    assert lines("main") == []
    (tmp_path / "old.py").write_text(TIED + "# new\nz = x.cuda()\ny = x.cuda()\n")  # in the work tree
    assert lines("main") == ["old.py:5"]
    repository("add", ".")  # staged
    assert lines("main") == ["old.py:5"]
    repository("commit", "-qm", "second")
    assert lines("main") == ["old.py:5"]
    assert lines("HEAD") == []
    (tmp_path / "new.py").write_text(TIED)  # untracked
    assert lines("main") == ["new.py:3", "old.py:5"]
    assert lines("main", "old.py") == ["old.py:5"]
    (tmp_path / "old.py").unlink()
    assert lines("main") == ["new.py:3"]


def test_the_number_of_hidden_findings(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(TIED + "y = x.cuda()\nz = x.cuda()\n")
    done = cli("check", "--no-cache", "--diff-base", "main")
    assert "3 findings on unchanged lines not shown (--diff-base).\n" in done.stderr
    assert "[*] 1 fixable with `check --fix`, which also fixes unchanged lines.\n" in done.stdout
    assert "not shown" not in cli("check", "-q", "--no-cache", "--diff-base", "main").stderr


def test_commits_on_the_other_branch_are_not_changes(repository: Git, lines: Lines, tmp_path: Path) -> None:
    repository("checkout", "-q", "main")
    (tmp_path / "old.py").write_text(TIED.replace("ones", "zeros"))
    repository("commit", "-qam", "on main")
    repository("checkout", "-q", "work")
    assert lines("main") == []


def test_renamed_files(repository: Git, lines: Lines, tmp_path: Path) -> None:
    repository("mv", "renamed.py", 'naïve "name"\t\n.py')
    new = tmp_path / 'naïve "name"\t\n.py'
    assert lines("main") == []
    new.write_text(new.read_text() + "x.cuda()\n")
    repository("commit", "-qam", "second")
    (line,) = lines("main")
    assert line.endswith("\\t\\n.py:8")


def test_findings_of_several_lines(repository: Git, lines: Lines, tmp_path: Path) -> None:
    text = "import torch\n\nx = torch.ones(\n    2,\n    3,\n    4,\n).cuda()\n# 1\n\n# 2\n"
    (tmp_path / "long.py").write_text(text)
    repository("add", ".")
    repository("commit", "-qm", "second")
    for new, found in (
        (text.replace("    4,", "    5,"), True),
        (text.replace("    4,\n", ""), True),  # gone from between its lines
        (text.replace("\n\nx", "\nx"), False),  # gone from before
        (text.replace("# 1\n", ""), False),
        (text.replace("# 1", "# 3"), False),
        (text.replace("\n", "\r\n"), False),  # as git checks it out
    ):
        (tmp_path / "long.py").write_bytes(new.encode())
        assert bool(lines("HEAD")) is found, new


def test_unchanged_files_belong_to_the_project(repository: Git, lines: Lines, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("class Net:\n    def cuda(self):\n        return self\n")
    repository("add", ".")
    repository("commit", "-qm", "second")
    (tmp_path / "uses.py").write_text("from net import Net\n\nnet = Net().cuda()\n")
    assert lines("HEAD") == []


def test_notebooks(repository: Git, tmp_path: Path) -> None:
    def notebook(*cells: str | list[str]) -> bytes:
        return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}).encode()

    def found(cell: int, line: int) -> Finding:
        return Finding("DF101", "", line, 1, line, 9, cell=cell)

    path = tmp_path / "a.ipynb"
    path.write_bytes(notebook("import torch", "# 1\nx = torch.ones(2).cuda()"))
    repository("add", ".")
    repository("commit", "-qm", "second")
    new = notebook("import torch", "# new", ["# 1\n", "x = torch.ones(2).cuda()\n", "y = x.cuda()"])
    result = Since("HEAD", [path]).limited(Found(str(path), [found(2, 1), found(3, 2), found(3, 3)]), new)
    assert result.findings == [found(2, 1), found(3, 3)]


def test_standard_input(check: Check, lines: Lines) -> None:
    assert lines("main", "-", "--stdin-filename=old.py", input=f"{TIED}x.cuda()\ny = x.cuda()\n") == [
        "old.py:4"
    ]
    result = check("main", "-", input=TIED)
    assert result.exit_code == 2 and "needs --stdin-filename" in result.stderr


def test_a_nested_work_tree(repository: Git, lines: Lines, tmp_path: Path) -> None:
    repository("clone", "-q", ".", "inner")
    repository("checkout", "-q", "main", folder=tmp_path / "inner")
    (tmp_path / "inner" / "old.py").write_text(TIED + "x.cuda()\n")
    assert lines("main") == ["inner/old.py:4"]


@pytest.mark.parametrize(
    ("revision", "said"),
    [
        ("nowhere", "there is no revision 'nowhere' in"),
        ("--output=x", "there is no revision '--output=x' in"),
        ("other", "'other' and HEAD have no commit in common in"),
    ],
)
def test_bad_revisions_end_the_run_in_one_line(
    repository: Git, check: Check, revision: str, said: str
) -> None:
    repository("checkout", "-q", "--orphan", "other")
    repository("commit", "-qm", "alone")
    repository("checkout", "-q", "main")
    result = check(revision)
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith(f"Error: --diff-base: {said}") and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("clone", "revision", "command"),
    [
        ("--depth=1", "origin/main", "git fetch --unshallow origin main:refs/remotes/origin/main"),
        ("--depth=1", "origin/main~0", "git fetch --unshallow origin main:refs/remotes/origin/main"),
        ("--single-branch", "origin/main", "git fetch origin main:refs/remotes/origin/main"),
        ("--depth=1", "main", "git fetch --unshallow origin main:main"),
        ("--depth=1", "v1", "git fetch --unshallow --tags"),
        ("--depth=1", "HEAD~1", "git fetch --unshallow"),
        ("--depth=1 --no-single-branch", "origin/main", "git fetch --unshallow"),
    ],
)
def test_what_a_clone_lacks_is_fetched_with_the_command_of_the_error(
    repository: Git, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    clone: str, revision: str, command: str,
) -> None:  # fmt: skip
    repository("commit", "-qm", "second", "--allow-empty")
    repository("tag", "-am", "tag", "v1", "main")
    repository("clone", "-q", *clone.split(), f"file://{tmp_path}", "--branch=work", "part")
    monkeypatch.chdir(tmp_path / "part")
    result = check(revision)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert re.search(rf" {command}(,|\n)", result.stderr), result.stderr
    assert ("shallow clone" in result.stderr) is ("depth" in clone)
    repository(*command.split()[1:], folder=tmp_path / "part")
    assert check(revision).exit_code == 0


def test_without_git(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").rename(tmp_path / ".not-git")
    assert "is not in a git work tree" in check("main").stderr
    (tmp_path / ".git").mkdir()
    assert "git refuses to use" in check("main").stderr
    (tmp_path / ".git").rmdir()
    (tmp_path / ".not-git").rename(tmp_path / ".git")
    monkeypatch.setenv("PATH", "")
    result = check("main")
    assert (result.exit_code, result.stderr) == (2, "Error: --diff-base: git is not installed\n")


def test_no_program_that_the_repository_configures_runs(
    repository: Git, lines: Lines, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch '{ran}'\ncat\n")
    program.chmod(0o755)
    (tmp_path / ".gitattributes").write_text("*.py filter=bad diff=bad\n")
    for key in (
        "filter.bad.clean", "filter.bad.smudge", "filter.bad.process", "diff.bad.textconv",
        "diff.bad.command", "diff.external", "core.fsmonitor", "core.pager", "core.sshCommand",
    ):  # fmt: skip
        repository("config", key, str(program))
    hooks = tmp_path / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction"):
        (hooks / name).write_text(program.read_text())
        (hooks / name).chmod(0o755)
    os.utime(tmp_path / "old.py", (1, 1))
    (tmp_path / "renamed.py").write_text(TIED + "x.cuda()\n")
    assert lines("main") == ["renamed.py:4"]
    assert not ran.exists()
    subprocess.run(["git", "diff", "main"], cwd=tmp_path, capture_output=True, check=False)  # runs them
    assert ran.exists()


def test_write_baseline_is_refused(check: Check) -> None:
    result = check("main", "--baseline=known.json", "--write-baseline")
    assert result.exit_code == 2 and "cannot be used with --diff-base" in result.stderr
