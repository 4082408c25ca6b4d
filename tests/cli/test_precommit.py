"""The hooks, run by pre-commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import ROOT, Git, ProjectFolder

PACKAGE = (".pre-commit-hooks.yaml", "pyproject.toml", "README.md", "LICENSE", "devicefix")
TIED = "import torch\n\nx = torch.ones(2).cuda()\n"
FILES = {"tied.py": TIED, "notes.txt": "x.cuda()\n"}

RunHook = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a repository with devicefix as it is now, and its commit."""
    folder = tmp_path_factory.mktemp("devicefix")
    for name in PACKAGE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder)
    git = Git(folder)
    git.commit_all()
    return folder, git("rev-parse", "HEAD")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which pre-commit keeps the environments of the hooks."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def run_hook(git: Git, project: ProjectFolder, hooks: tuple[Path, str], home: Path) -> RunHook:
    """Return a function that runs a hook on all files of a new repository."""
    folder, commit = hooks

    def run(hook: str) -> subprocess.CompletedProcess[str]:
        hooks_file = f"repos:\n- repo: {folder}\n  rev: {commit}\n  hooks:\n  - id: {hook}\n"
        project.write({".pre-commit-config.yaml": hooks_file})
        git("init", "-q")
        git("add", ".")
        return subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color=never"],
            cwd=project.path,
            env={**os.environ, "PRE_COMMIT_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    return run


@pytest.mark.slow
def test_check_hook(run_hook: RunHook, project: ProjectFolder) -> None:
    project.write(FILES)
    done = run_hook("devicefix-check")
    assert done.returncode == 1, done.stdout
    assert "tied.py:3:5: DF101" in done.stdout
    assert {name: project.read(name) for name in FILES} == FILES


@pytest.mark.slow
def test_rewrite_hook(run_hook: RunHook, project: ProjectFolder) -> None:
    project.write(FILES)
    done = run_hook("devicefix-rewrite")
    assert done.returncode == 1, done.stdout
    assert "files were modified by this hook" in done.stdout
    assert "Warning" not in done.stdout  # the files are staged
    assert ".cuda()" not in project.read("tied.py")
    assert project.read("notes.txt") == FILES["notes.txt"]
    assert "Passed" in run_hook("devicefix-rewrite").stdout


@pytest.mark.slow
def test_excluded_files_stay_excluded(run_hook: RunHook, project: ProjectFolder) -> None:
    """pre-commit names each file, and each obeys its nearest configuration."""
    project.write(
        {
            "devicefix.toml": 'exclude = ["gen/"]\n', "tied.py": TIED, "gen/tied.py": TIED,
            "inner/devicefix.toml": 'ignore = ["DF1"]\n', "inner/tied.py": TIED,
        }
    )  # fmt: skip
    found = [line for line in run_hook("devicefix-check").stdout.splitlines() if ": DF" in line]
    assert [line.partition(":")[0] for line in found] == ["tied.py"]
    run_hook("devicefix-rewrite")
    names = ("tied.py", "gen/tied.py", "inner/tied.py")
    assert [project.read(name) == TIED for name in names] == [False, True, True]
