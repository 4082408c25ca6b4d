"""Tests of finding files: those that are named, and those in folders."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from helpers import Cli, Git, ProjectFolder

from devicefix.config.resolver import Everywhere
from devicefix.config.settings import Settings
from devicefix.config.values import Exclusion
from devicefix.files import discover as files
from devicefix.files.kinds import is_python
from devicefix.runner.find import Choice


def make(top: Path, *names: str) -> None:
    """Create empty files, and the folders that they are in."""
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).touch()


Found = Callable[..., list[str]]


class Modules(Choice):
    """Python files that the settings include."""

    def includes(self, path: str) -> bool:
        return is_python(path)


@pytest.fixture
def found(project: ProjectFolder) -> Found:
    """Return a function that finds files in the project folder, and returns their names."""

    def found(*paths: str, exclude: Iterable[str] = ()) -> list[str]:
        exclusions = tuple(Exclusion(pattern, project.path) for pattern in exclude)
        choice = Modules(Everywhere(Settings(exclude=exclusions)))
        return [path.as_posix() for path in files.find(map(Path, paths or (".",)), choice)]

    return found


def test_python_files_in_folders_sorted(tmp_path: Path, found: Found) -> None:
    make(tmp_path, "b.py", "a/z.py", "a/b.pyi", "c.txt", "d.pyc", "e.ipynb", "py")
    assert found() == ["a/b.pyi", "a/z.py", "b.py"]
    assert found("a") == ["a/b.pyi", "a/z.py"]
    assert found(str(tmp_path / "a")) == [f"{tmp_path}/a/b.pyi", f"{tmp_path}/a/z.py"]


def test_each_file_once(tmp_path: Path, found: Found) -> None:
    make(tmp_path, "a/z.py")
    (tmp_path / "a" / "link.py").symlink_to("z.py")
    (tmp_path / "0.py").symlink_to("a/z.py")
    assert found("a", ".", "a/z.py", "a/../a") == ["a/z.py"]
    assert found("0.py") == ["0.py"]


def test_a_named_file_is_taken_whatever_it_is_called(tmp_path: Path, found: Found) -> None:
    make(tmp_path, "script", ".venv/a.py", "build/b.py", "gen/c.py")
    named = ["script", ".venv/a.py", "build/b.py", "gen/c.py"]
    assert found(*named, exclude=["gen/", "script"]) == sorted(named)


def test_folders_left_out_unless_named(tmp_path: Path, found: Found) -> None:
    make(tmp_path, "a.py", ".venv/b.py", "x/node_modules/c.py", "build/lib/d.py", "x/__pycache__/e.py")
    assert found() == ["a.py"]
    assert found("build") == ["build/lib/d.py"]
    assert found(".venv", "a.py") == [".venv/b.py", "a.py"]


def test_caches_are_left_out_unless_named(tmp_path: Path, found: Found) -> None:
    make(tmp_path, "a.py", "old/CACHEDIR.TAG", "old/b.py", "old/x/c.py", "CACHEDIR.TAG")
    assert found() == ["a.py"]
    assert found("old") == ["old/b.py", "old/x/c.py"]


def test_a_package_called_dist_is_not_a_build(tmp_path: Path, found: Found) -> None:
    make(tmp_path, "net/dist/__init__.py", "net/dist/launch.py", "dist/net/a.py")
    assert found() == ["net/dist/__init__.py", "net/dist/launch.py"]


def test_exclude(tmp_path: Path, found: Found) -> None:
    make(tmp_path, "a.py", "gen/a.py", "x/gen/b.py", "x/a_pb2.py")
    assert found(exclude=["gen/"]) == ["a.py", "x/a_pb2.py"]
    assert found(exclude=["/gen"]) == ["a.py", "x/a_pb2.py", "x/gen/b.py"]
    assert found(exclude=["*_pb2.py", "x/gen/*.py"]) == ["a.py", "gen/a.py"]
    assert found("gen", exclude=["gen/"]) == ["gen/a.py"]


def test_links_to_folders_are_not_followed(tmp_path: Path, found: Found) -> None:
    make(tmp_path, "in/a.py", "out/b.py")
    (tmp_path / "in" / "out").symlink_to(tmp_path / "out")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "nowhere.py").symlink_to("missing.py")
    assert found("in") == ["in/a.py"]


def test_only_regular_files_are_found(tmp_path: Path, found: Found) -> None:
    make(tmp_path, "a.py", "folder.py/b.py")
    os.mkfifo(tmp_path / "pipe.py")
    assert found() == ["a.py", "folder.py/b.py"]


@pytest.mark.parametrize("tracked", [False, True])
def test_odd_names(tmp_path: Path, found: Found, git: Git, tracked: bool) -> None:
    names = [os.fsdecode(name) for name in (b"a\nb.py", b"\xff/\xfe.py", b"sp ace/\xc3\xa9'\".py", b"-x.py")]
    make(tmp_path, *names)
    if tracked:
        git("init", "-q")
        git("add", ".")
    assert found() == sorted(names)


def test_gitignore_in_a_work_tree(tmp_path: Path, found: Found, git: Git) -> None:
    git("init", "-q")
    make(tmp_path, "a.py", "ignored/b.py", "ignored/tracked.py", "gone.py", "new.py", ".venv/c.py")
    (tmp_path / ".gitignore").write_text("ignored/\n")
    git("add", "-f", "a.py", "ignored/tracked.py", "gone.py")
    (tmp_path / "gone.py").unlink()
    assert found() == ["a.py", "ignored/tracked.py", "new.py"]
    assert found("ignored/b.py") == ["ignored/b.py"]
    assert found("ignored") == ["ignored/b.py", "ignored/tracked.py"]


def test_gitignore_without_git_means_nothing(tmp_path: Path, found: Found) -> None:
    make(tmp_path, "a.py", "ignored/b.py")
    (tmp_path / ".gitignore").write_text("ignored/\n")
    assert found() == ["a.py", "ignored/b.py"]


def test_repositories_in_the_repository(tmp_path: Path, found: Found, git: Git) -> None:
    other = tmp_path / "other"
    make(other, "lib.py")
    git.commit_all(folder=other)
    top = tmp_path / "top"
    make(top, "a.py", "nested/b.py")
    git("init", "-q", folder=top)
    git("init", "-q", folder=top / "nested")
    git("submodule", "--quiet", "add", other, "sub", folder=top)
    assert found("top") == ["top/a.py", "top/nested/b.py", "top/sub/lib.py"]


def test_an_uninitialised_submodule_is_empty(tmp_path: Path, found: Found, git: Git) -> None:
    git("init", "-q")
    make(tmp_path, "a.py")
    (tmp_path / "sub").mkdir()
    git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    assert found() == ["a.py"]
    assert found("sub") == []


def test_inside_a_git_hook(tmp_path: Path, found: Found, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    git("init", "-q")
    make(tmp_path, "x/a.py", "x/ignored.py")
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    monkeypatch.setenv("GIT_DIR", ".git")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    assert found("x") == ["x/a.py"]


def test_git_runs_nothing_that_the_repository_names(tmp_path: Path, found: Found, git: Git) -> None:
    git("init", "-q")
    make(tmp_path, "a.py")
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/run'\n")
    hook.chmod(0o755)
    git("config", "core.fsmonitor", str(hook))
    assert found() == ["a.py"]
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a.py", "locked/b.py")
    scandir = os.scandir

    def locked(path: str) -> object:
        if os.path.basename(path) == "locked":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", locked)
    errors: list[OSError] = []
    assert files.find([tmp_path], onerror=errors.append) == [tmp_path / "a.py"]
    assert [problem.filename for problem in errors] == [str(tmp_path / "locked")]


@pytest.mark.skipif(os.name != "posix", reason="paths are shorter there")
@pytest.mark.parametrize("in_git", [False, True])
def test_folders_nested_more_deeply_than_python_calls(
    cli: Cli, tmp_path: Path, git: Git, in_git: bool
) -> None:
    deep, limit = 400, sys.getrecursionlimit()
    Path("y.py").write_text("import torch\ny.cuda()\n")
    cli("rewrite", "-i", "--no-cache", "-q", ".")  # imports call one another many times
    for _ in range(deep):
        os.mkdir("a")
        os.chdir("a")
    Path("x.py").write_text("import torch\nx.cuda()\n")
    os.chdir(tmp_path)
    try:
        if in_git:
            git("init", "-q")
        sys.setrecursionlimit(len(inspect.stack()) + deep - 50)
        done = cli("check", "--no-cache", "--exclude", "b/**/c", ".")
        assert (done.exit_code, done.stdout.count("DF101")) == (1, 1), done.output
        done = cli("rewrite", "-i", "--no-cache", "-q", ".")
        assert done.exit_code == 0, done.output
    finally:
        sys.setrecursionlimit(limit)
        subprocess.run(["rm", "-rf", "a"], check=True)  # shutil calls itself for each folder


def test_repositories_nested_in_one_another(tmp_path: Path, git: Git, found: Found) -> None:
    make(tmp_path, "a.py", "b/b.py", "b/c/c.py", "b/c/out/d.py")
    for folder in (tmp_path, tmp_path / "b", tmp_path / "b" / "c"):
        git("init", "-q", folder=folder)
    (tmp_path / "b" / "c" / ".gitignore").write_text("out/\n")
    assert found() == ["a.py", "b/b.py", "b/c/c.py"]
    assert found(exclude=["b/"]) == ["a.py"]
