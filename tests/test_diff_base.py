"""`devicefix check --diff-base`, with real git repositories."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from devicefix.cli import main
from devicefix.model import Finding
from devicefix.model import Result as Found
from devicefix.runner.git import Since

TIED = "import torch\n\nx = torch.ones(2).cuda()\n"

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """A repository as the current folder, with one commit on main."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.chdir(tmp_path)

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        done = subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout

    git("init", "-q", "-b", "main")
    (tmp_path / "old.py").write_text(TIED + "y = x.cuda()\n")
    (tmp_path / "renamed.py").write_text(TIED + "# 1\n# 2\n# 3\n# 4\n")
    git("add", ".")
    git("commit", "-qm", "first")
    git("checkout", "-qb", "work")
    return git


def check(*arguments: str, data: str | None = None) -> Result:
    given = ["check", "-q", "--no-cache", "--diff-base", *arguments]
    return CliRunner().invoke(main, given, input=data)


def lines(*arguments: str, data: str | None = None) -> list[str]:
    """The path and line of each finding."""
    result = check(*arguments, data=data)
    assert result.exit_code == (1 if result.stdout else 0), result.output
    return [":".join(line.split(":")[:2]) for line in result.stdout.splitlines() if ": DF" in line]


def test_only_what_has_changed(git: Git, tmp_path: Path) -> None:
    assert lines("main") == []
    (tmp_path / "old.py").write_text(TIED + "# new\nz = x.cuda()\ny = x.cuda()\n")  # in the work tree
    assert lines("main") == ["old.py:5"]
    git("add", ".")  # staged
    assert lines("main") == ["old.py:5"]
    git("commit", "-qm", "second")
    assert lines("main") == ["old.py:5"]
    assert lines("HEAD") == []
    (tmp_path / "new.py").write_text(TIED)  # untracked
    assert lines("main") == ["new.py:3", "old.py:5"]
    assert lines("main", "old.py") == ["old.py:5"]
    (tmp_path / "old.py").unlink()
    assert lines("main") == ["new.py:3"]


def test_what_the_other_branch_has_done_since_is_no_change(git: Git, tmp_path: Path) -> None:
    git("checkout", "-q", "main")
    (tmp_path / "old.py").write_text(TIED.replace("ones", "zeros"))
    git("commit", "-qam", "on main")
    git("checkout", "-q", "work")
    assert lines("main") == []


def test_renamed_files(git: Git, tmp_path: Path) -> None:
    git("mv", "renamed.py", 'naïve "name"\t\n.py')
    new = tmp_path / 'naïve "name"\t\n.py'
    assert lines("main") == []
    new.write_text(new.read_text() + "x.cuda()\n")
    git("commit", "-qam", "second")
    (line,) = lines("main")
    assert line.endswith("\\t\\n.py:8")


def test_findings_of_several_lines(git: Git, tmp_path: Path) -> None:
    text = "import torch\n\nx = torch.ones(\n    2,\n    3,\n    4,\n).cuda()\n# 1\n\n# 2\n"
    (tmp_path / "long.py").write_text(text)
    git("add", ".")
    git("commit", "-qm", "second")
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


def test_the_project_is_all_files(git: Git, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("class Net:\n    def cuda(self):\n        return self\n")
    git("add", ".")
    git("commit", "-qm", "second")
    (tmp_path / "uses.py").write_text("from net import Net\n\nnet = Net().cuda()\n")
    assert lines("HEAD") == []


def test_notebooks(git: Git, tmp_path: Path) -> None:
    def notebook(*cells: str | list[str]) -> bytes:
        return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}).encode()

    def found(cell: int, line: int) -> Finding:
        return Finding("DF101", "", line, 1, line, 9, cell=cell)

    path = tmp_path / "a.ipynb"
    path.write_bytes(notebook("import torch", "# 1\nx = torch.ones(2).cuda()"))
    git("add", ".")
    git("commit", "-qm", "second")
    new = notebook("import torch", "# new", ["# 1\n", "x = torch.ones(2).cuda()\n", "y = x.cuda()"])
    result = Since("HEAD", [path]).limited(Found(str(path), [found(2, 1), found(3, 2), found(3, 3)]), new)
    assert result.findings == [found(2, 1), found(3, 3)]


def test_standard_input(git: Git) -> None:
    assert lines("main", "-", "--stdin-filename=old.py", data=f"{TIED}x.cuda()\ny = x.cuda()\n") == [
        "old.py:4"
    ]
    result = check("main", "-", data=TIED)
    assert result.exit_code == 2 and "needs --stdin-filename" in result.stderr


def test_a_work_tree_in_the_work_tree(git: Git, tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "-q", ".", "inner"], cwd=tmp_path, check=True)
    subprocess.run(["git", "checkout", "-q", "main"], cwd=tmp_path / "inner", check=True)
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
def test_bad_revisions_end_the_run_in_one_line(git: Git, revision: str, said: str) -> None:
    git("checkout", "-q", "--orphan", "other")
    git("commit", "-qm", "alone")
    git("checkout", "-q", "main")
    result = check(revision)
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith(f"Error: --diff-base: {said}") and result.stderr.count("\n") == 1


def test_short_history_is_told(git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git("commit", "-qam", "second", "--allow-empty")
    subprocess.run(
        ["git", "clone", "-q", "--depth=1", f"file://{tmp_path}", "--branch=work", "short"],
        cwd=tmp_path,
        check=True,
    )
    monkeypatch.chdir(tmp_path / "short")
    result = check("main")
    assert result.exit_code == 2 and "whose history is cut short: git fetch --unshallow" in result.stderr


def test_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, git: Git) -> None:
    (tmp_path / ".git").rename(tmp_path / ".not-git")
    assert "is in no git work tree" in check("main").stderr
    (tmp_path / ".git").mkdir()
    assert "git does not accept" in check("main").stderr
    (tmp_path / ".git").rmdir()
    (tmp_path / ".not-git").rename(tmp_path / ".git")
    monkeypatch.setenv("PATH", "")
    result = check("main")
    assert (result.exit_code, result.stderr) == (2, "Error: --diff-base: git is not installed\n")


def test_nothing_that_the_repository_names_runs(git: Git, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch '{ran}'\ncat\n")
    program.chmod(0o755)
    (tmp_path / ".gitattributes").write_text("*.py filter=bad diff=bad\n")
    for key in (
        "filter.bad.clean", "filter.bad.smudge", "filter.bad.process", "diff.bad.textconv",
        "diff.bad.command", "diff.external", "core.fsmonitor", "core.pager", "core.sshCommand",
    ):  # fmt: skip
        git("config", key, str(program))
    hooks = tmp_path / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction"):
        (hooks / name).write_text(program.read_text())
        (hooks / name).chmod(0o755)
    os.utime(tmp_path / "old.py", (1, 1))
    (tmp_path / "renamed.py").write_text(TIED + "x.cuda()\n")
    assert lines("main") == ["renamed.py:4"]
    assert not ran.exists()
    subprocess.run(["git", "diff", "main"], cwd=tmp_path, capture_output=True)  # which does run them
    assert ran.exists()


def test_does_not_go_with_a_new_baseline(git: Git) -> None:
    result = check("main", "--baseline=known.json", "--write-baseline")
    assert result.exit_code == 2 and "cannot be used with --diff-base" in result.stderr
