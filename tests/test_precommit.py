"""The hooks, under the real pre-commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = (".pre-commit-hooks.yaml", "pyproject.toml", "README.md", "LICENSE", "devicefix")
TIED = "import torch\n\nx = torch.ones(2).cuda()\n"


def git(folder: Path, *arguments: str) -> str:
    """What git prints, whatever the user's own settings."""
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    command = ["git", *identity, *arguments]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **own}, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A repository of devicefix as it stands, and its commit."""
    folder = tmp_path_factory.mktemp("devicefix")
    for name in PACKAGE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "devicefix")
    return folder, git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pre-commit keeps the hooks' environments."""
    return tmp_path_factory.mktemp("home")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hook", "says", "writes"),
    [("devicefix-check", "DF", False), ("devicefix-rewrite", "files were modified by this hook", True)],
)
def test_hook(
    tmp_path: Path, hooks: tuple[Path, str], home: Path, hook: str, says: str, writes: bool
) -> None:
    folder, commit = hooks
    (tmp_path / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {folder}\n  rev: {commit}\n  hooks:\n  - id: {hook}\n"
    )
    (tmp_path / "tied.py").write_text(TIED)
    (tmp_path / "notes.txt").write_text("x.cuda()\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color=never"],
            cwd=tmp_path,
            env={**os.environ, "PRE_COMMIT_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    first = run()
    assert first.returncode == 1, first.stdout
    assert says in first.stdout
    assert (tmp_path / "notes.txt").read_text() == "x.cuda()\n"
    assert (".cuda()" not in (tmp_path / "tied.py").read_text()) is writes
    if writes:
        git(tmp_path, "add", ".")
        assert "Passed" in run().stdout
