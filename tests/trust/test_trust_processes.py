"""No program that devicefix starts comes from the current folder, nor what it imports."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
from helpers import ROOT, Git, devicefix

TIED = "import torch\n\nx = torch.ones(2).cuda()\n"
FILES = 40  # enough for a pool

# Whatever Python, devicefix or its dependencies may import, and names that Python or tools import unasked.
PLANTED = sys.stdlib_module_names | {
    "_manylinux", "_virtualenv", "click", "conftest", "devicefix", "jinja2", "libcst", "markdown_it", "numpy",
    "pathspec", "pkg_resources", "rich", "setup", "sitecustomize", "tomli", "torch", "typing_extensions",
    "usercustomize", "yaml",
}  # fmt: skip

# What pip makes of the entry point, but with a start method, and with a line for each worker process.
SCRIPT = """
import sys
import time
from devicefix.cli import main

if __name__ == "__main__":
    import multiprocessing
    from multiprocessing.process import BaseProcess

    def counted(self, start=BaseProcess.start):
        print("started", file=sys.stderr)
        start(self)

    BaseProcess.start = counted
    multiprocessing.set_start_method(sys.argv.pop(1))
    main()
"""

STARTING = re.compile(
    r"(multiprocessing|pty|subprocess)\b|asyncio\.(create_)?subprocess|ProcessPoolExecutor$"
    r"|os\.(exec|fork|popen|posix_spawn|spawn|startfile|system)"
)

METHODS = ["fork", "spawn", "forkserver"]
THIS = "{}.{}".format(*sys.version_info)
VERSIONS = [
    pytest.param(version, marks=[] if version == THIS else pytest.mark.slow)
    for version in ("3.10", "3.11", "3.12", "3.13", "3.14")
]


class Tree:
    """A current folder with all modules that might be imported, a plugin, and some files to check.

    Attributes:
        path: the folder.
        mark: what the planted modules write to, beside the folder.
    """

    def __init__(self, top: Path, without: frozenset[str] = frozenset()) -> None:
        self.path = top / "tree"
        self.mark = top / "mark"
        (self.path / "code").mkdir(parents=True)
        for name in PLANTED - without:
            (self.path / f"{name}.py").write_text(f"open({str(self.mark)!r}, 'a').write({name + ' '!r})\n")
        metadata = self.path / "planted-1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1\n")
        (metadata / "entry_points.txt").write_text("[devicefix.rules]\nplanted = this\n")
        for number in range(FILES):
            (self.path / "code" / f"{number}.py").write_text(TIED)

    def run(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
        return subprocess.run(
            [*map(str, command)],
            cwd=self.path, env=variables | environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def ran(self) -> str:
        """Return the names of the planted modules that ran."""
        return self.mark.read_text() if self.mark.exists() else ""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def checks_all(tree: Tree, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command that checks the files in two processes, and check that no planted module runs."""
    done = tree.run(*command, "check", "-j2", "--no-cache", "code", **environment)
    assert tree.ran() == "", done.stderr
    assert done.stdout.count("DF101") == FILES, done.stderr
    assert done.returncode == 1
    return done


@cache
def interpreter(version: str) -> str:
    """Return a Python of a version: the running one, or one of pyenv's.

    The others have no packages. devicefix and click are pure Python, and go on their path. LibCST is compiled
    for the running one: the others can check files, which needs no LibCST, but can't rewrite them.
    """
    if version == THIS:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = sorted((pyenv / "versions").glob(f"{version}.*/bin/python"))
    if not found:
        pytest.skip(f"pyenv has no Python {version}")
    return str(found[-1])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("version", VERSIONS)
def test_worker_processes_import_nothing_of_the_current_folder(
    tree: Tree, tmp_path: Path, version: str, method: str
) -> None:
    python = interpreter(version)
    if os.name == "nt" and method != "spawn":
        pytest.skip("Windows can only spawn")
    script = tmp_path / "bin" / "devicefix"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    path = {} if python == sys.executable else {"PYTHONPATH": pure_packages()}
    done = checks_all(tree, python, script, method, **path)
    assert done.stderr.count("started") == 2, done.stderr


def pure_packages() -> str:
    return os.pathsep.join([str(ROOT), str(Path(click.__file__).parents[1])])


def test_without_the_environment_too(tree: Tree, tmp_path: Path) -> None:
    """`python -E`, as in scripts of some Linux distributions, ignores variables such as PYTHONSAFEPATH."""
    script = tmp_path / "devicefix"
    script.write_text(SCRIPT)
    checks_all(tree, sys.executable, "-E", script, "spawn")


@pytest.mark.parametrize("version", VERSIONS)
def test_as_a_module_only_what_python_itself_imports_first_can_run(tmp_path: Path, version: str) -> None:
    """Python looks in the current folder for the modules that `-m` needs, and for devicefix itself."""
    python = interpreter(version)
    (tmp_path / "empty.py").write_text("import sys; print(*sys.modules)")
    code = [python, "-S", "-m", "empty"]
    first = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    tree = Tree(tmp_path, without=frozenset({"devicefix", *first.split()}))
    checks_all(tree, python, "-S", "-m", "devicefix", PYTHONPATH=pure_packages())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no safe path")
def test_as_a_module_with_a_safe_path_nothing_can_run(tree: Tree) -> None:
    checks_all(tree, sys.executable, "-P", "-m", "devicefix")
    checks_all(tree, sys.executable, "-m", "devicefix", PYTHONSAFEPATH="1")


@pytest.mark.skipif(os.name == "nt", reason="the current folder can't be removed")
def test_a_current_folder_that_has_been_removed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    done = devicefix("--version", cwd=folder, preexec_fn=folder.rmdir)
    assert done.stdout.startswith("devicefix "), done.stderr


def test_a_folder_that_the_user_puts_on_the_path_is_imported_from(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('it runs')")
    done = devicefix("--version", cwd=tmp_path, env={**os.environ, "PYTHONPATH": "."})
    assert done.stdout.startswith("it runs\ndevicefix ")


@pytest.mark.skipif(os.name == "nt", reason="a script is no program there")
@pytest.mark.parametrize("path", [".", "", "code"])
def test_git_of_the_current_folder_does_not_run(
    tree: Tree, git: Git, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Windows looks there without being told; other systems do if PATH says so."""
    for folder in (tree.path, tree.path / "code"):
        planted = folder / "git"
        planted.write_text(f"#!/bin/sh\necho git >> {tree.mark}\n")
        planted.chmod(0o755)
    git("init", "-q", folder=tree.path)
    (tree.path / ".gitignore").write_text("1*.py\n")
    monkeypatch.setenv("PATH", os.pathsep.join([path, os.environ["PATH"]]))
    done = tree.run(sys.executable, "-I", "-m", "devicefix", "check", "-q", "--no-cache", "code")
    assert done.stdout.count("DF101") == FILES - 11, done.stderr  # the real git has been asked
    assert tree.ran() == ""


def test_nothing_else_starts_processes() -> None:
    """Those that do are tested above, or run the user's program."""
    files = (ROOT / "devicefix").rglob("*.py")
    starting = {file.relative_to(ROOT / "devicefix").as_posix() for file in files if starts_processes(file)}
    assert {name for name in starting if not name.startswith("verify/")} == {
        "files/discover.py", "migrate/branches.py", "runner/processes.py",
    }  # fmt: skip


def starts_processes(file: Path) -> bool:
    """Return whether a module imports or calls what starts processes."""
    named: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            named |= {getattr(node, "module", None) or "", *(alias.name for alias in node.names)}
        elif isinstance(node, ast.Attribute):
            named.add(ast.unparse(node))
    return any(STARTING.match(name) for name in named)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_worker_processes_end_with_the_one_that_is_killed(tmp_path: Path) -> None:
    psutil = pytest.importorskip("psutil")
    for number in range(200):
        (tmp_path / f"m{number}.py").write_text(TIED * 20)
    command = [sys.executable, "-m", "devicefix", "check", "--quiet", "--no-cache", "--jobs", "2", "."]
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # what a killed process leaves
    first = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, env=environment)
    workers: list[Any] = []
    while first.poll() is None and len(workers) < 2:
        workers = psutil.Process(first.pid).children()
    time.sleep(0.3)
    assert first.poll() is None and len(workers) == 2
    first.kill()
    first.wait()
    assert not psutil.wait_procs(workers, timeout=20)[1]
