"""Fixtures that many tests share, and the modules that are skipped without what they need."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import ROOT, Cli, Git, ProjectFolder
from hypothesis import settings
from running import ProgramFolder

from devicefix.config.settings import KEYS

if TYPE_CHECKING:
    from meaning import Judge
    from playwright.sync_api import Browser

# Modules that the extra `test` does not install. A module of tests that imports one of them at its top is
# skipped without it; tests that need one in another process have the mark `needs`.
OPTIONAL = frozenset(
    {
        "IPython", "distributed", "jinja2", "jsonschema", "junitparser", "lsprotocol", "markdown_it",
        "nbformat", "numpy", "playwright", "psutil", "pygls", "pytest_lsp", "torch",
        "watchfiles", "yaml",
    }
)  # fmt: skip


# A test tries the same inputs each time, so that a failure belongs to the change under test.
settings.register_profile("repeatable", derandomize=not os.environ.get("DEVICEFIX_FUZZ"))
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the option of pytest-asyncio where that is not installed, so that it is not an unknown one."""
    if find_spec("pytest_asyncio") is None:
        parser.addini("asyncio_default_fixture_loop_scope", "for pytest-asyncio, which is not installed")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Give each process tests that follow one another, since those of a module share costly fixtures."""
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


# With these variables, which git sets for its hooks and for `git rebase --exec`, all git commands of tests
# would work on this checkout.
for variable in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"):
    os.environ.pop(variable, None)

# Most tests expect a machine without a GPU. Those of CUDA itself get the GPUs from the other variable.
if shutil.which("nvidia-smi"):
    os.environ.setdefault("DEVICEFIX_TEST_GPUS", os.environ.get("CUDA_VISIBLE_DEVICES", "0"))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

# A background job of a shell ignores SIGINT, and one of `nohup` SIGHUP. Every process that a test starts
# would do so, too; a signal with a handler has its default there.
for name in ("SIGINT", "SIGHUP"):
    if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) == signal.SIG_IGN:
        signal.signal(getattr(signal, name), lambda *_: None)

TREE = pytest.StashKey[str]()


def tree() -> str:
    """Return how this checkout differs from its last commit; nothing where git has none."""
    state = ""
    for command in (["status", "--porcelain", "."], ["diff", "HEAD", "--no-ext-diff", "--binary", "."]):
        try:
            done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return ""
        state += os.fsdecode(done.stdout)
    return state


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remember the state of the checkout, in the process that controls the others."""
    if not hasattr(session.config, "workerinput"):
        session.config.stash[TREE] = tree()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if the checkout is not as it was: a test writes into it."""
    if TREE in session.config.stash and (after := tree()) != session.config.stash[TREE]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.section("the checkout has changed while the tests ran", red=True)
            reporter.write(after.partition("diff --git")[0])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked with `needs` where one of the modules that it names is missing."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            if find_spec(name) is None:
                pytest.skip(f"needs {name}: pip install -e '.[dev]'")


class OptionalModule(pytest.Module):
    """A module of tests that is skipped if one of the optional packages is missing."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        """Collect the tests, or skip them all."""
        try:
            return list(super().collect())
        except pytest.Collector.CollectError as problem:
            cause = problem.__cause__
            missing = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
            if missing not in OPTIONAL:
                raise
        pytest.skip(f"needs {missing}: pip install -e '.[dev]'", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """Let every module of tests be skipped without what it needs."""
    module: OptionalModule = OptionalModule.from_parent(parent, path=module_path)
    return module


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectFolder:
    """Return an empty folder, which is the current one during the test."""
    monkeypatch.chdir(tmp_path)
    return ProjectFolder(tmp_path)


@pytest.fixture
def cli(
    project: ProjectFolder, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Cli:
    """Return the command line, to run in the folder `project`, without the user's settings and cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    variables = {key.variable for key in KEYS.values() if key.variable}
    for name in (*variables, "NO_COLOR", "FORCE_COLOR", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return Cli()


@pytest.fixture
def git(project: ProjectFolder, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Return git, to run in the folder `project`; also devicefix runs it without the user's settings."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    return Git(project.path)


@pytest.fixture
def folder(tmp_path: Path) -> ProgramFolder:
    """Return an empty folder for a program to verify."""
    return ProgramFolder(tmp_path)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return Chromium. Without it the test is skipped, or fails if DEVICEFIX_BROWSER is set."""
    sync_api = pytest.importorskip("playwright.sync_api")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_api.sync_playwright() as playwright:
        program = program or playwright.chromium.executable_path
        if not os.path.exists(program):
            reason = "no Chromium: apt-get install chromium, or playwright install chromium"
            (pytest.fail if os.environ.get("DEVICEFIX_BROWSER") else pytest.skip)(reason)
        chromium = playwright.chromium.launch(executable_path=program)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """Return a judge of programs and their rewrites.

    Torch and its libraries are imported once, since its machines are forks.
    """
    meaning, meaning_run = importlib.import_module("meaning"), importlib.import_module("meaning_run")
    for module in meaning_run._LATER:
        importlib.import_module(module)
    with meaning.Judge() as judge:
        yield judge
