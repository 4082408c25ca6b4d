"""Helpers that many tests share; `conftest.py` makes fixtures of those that need a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from textwrap import dedent
from typing import Any

from click.testing import CliRunner
from click.testing import Result as CliResult

from devicefix.cli import main
from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project, ProjectFile
from devicefix.files.text import replaced as with_changes
from devicefix.model import Edit, Outcome, Replacement, Result
from devicefix.rewrite import edits
from devicefix.runner.run import check_text

__all__ = [
    "ROOT",
    "Cli",
    "CliResult",
    "Git",
    "ProjectFolder",
    "analyze",
    "analyze_file",
    "devicefix",
    "replaced",
    "runner",
]

ROOT = Path(__file__).parents[1]

Content = str | bytes


class ProjectFolder:
    """A folder for the files of one test."""

    def __init__(self, path: Path) -> None:
        """Use `path`, which must exist."""
        self.path = path

    def __truediv__(self, name: str) -> Path:
        """Return the path of a file in the folder."""
        return self.path / name

    def write(self, files: Mapping[str, Content]) -> list[Path]:
        """Write files, with the folders that they need.

        Args:
            files: the content by the path in the folder. Text is dedented and written as UTF-8 with its
                line ends as they are.

        Returns:
            The paths of the files, in the same order.
        """
        paths = [self.path / name for name in files]
        for path, content in zip(paths, files.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else dedent(content).encode())
        return paths

    def read(self, name: str) -> str:
        """Return the text of a file, with its line ends as they are."""
        return (self.path / name).read_bytes().decode()

    def names(self) -> list[str]:
        """Return the paths of all files in the folder, sorted, except those of git and of the cache."""
        paths = (path.relative_to(self.path) for path in self.path.rglob("*") if path.is_file())
        return sorted(path.as_posix() for path in paths if path.parts[0] not in (".git", ".devicefix_cache"))


def runner() -> CliRunner:
    """Return click's runner, whose results have both streams and their mixture, as in click 8.2 and newer."""
    options: dict[str, Any] = {}
    if "mix_stderr" in signature(CliRunner).parameters:
        options = {"mix_stderr": False}
        setattr(CliResult, "output", property(lambda done: done.stdout + done.stderr))  # noqa: B010 (for mypy)
    return CliRunner(**options)


class Cli:
    """The command line of devicefix, called in this process."""

    def __call__(self, *arguments: str | Path, **options: Any) -> CliResult:
        """Run devicefix. An exception other than the exit is an error of the test.

        Args:
            arguments: the command and its arguments.
            options: as for `CliRunner.invoke`, such as `input` and `env`.
        """
        return runner().invoke(
            main, [str(argument) for argument in arguments], catch_exceptions=False, **options
        )


class Git:
    """Git, without the settings of the user and of the machine."""

    def __init__(self, folder: Path) -> None:
        """Run it in `folder`."""
        self.folder = folder

    def __call__(self, *arguments: str | Path, folder: Path | None = None, data: Content = "") -> str:
        """Run git.

        Args:
            arguments: the command and its arguments.
            folder: the current folder, if it is not the one of the project.
            data: the standard input.

        Returns:
            The output, without a line end after it.

        Raises:
            subprocess.CalledProcessError: git failed.
        """
        isolated = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
        done = subprocess.run(
            ["git", *identity, *map(str, arguments)],
            cwd=folder or self.folder,
            env={**os.environ, **isolated},
            input=data.encode() if isinstance(data, str) else data,
            check=True,
            capture_output=True,
        )
        return os.fsdecode(done.stdout).rstrip("\n")

    def commit_all(self, message: str = "first", folder: Path | None = None) -> None:
        """Commit everything, in a new repository where there is none."""
        if not ((folder or self.folder) / ".git").exists():
            self("init", "-q", "-b", "main", folder=folder)
        self("add", ".", folder=folder)
        self("commit", "-q", "-m", message, folder=folder)


def apply(text: str, made: Iterable[Edit]) -> str:
    """Return a text with edits made."""
    return with_changes(text, edits.resolved(text, edits.joined(text, made)))


def devicefix(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run devicefix in a new process.

    Args:
        arguments: the command and its arguments.
        options: as for `subprocess.run`; the output is text unless they say otherwise.
    """
    command = [sys.executable, "-m", "devicefix", *map(str, arguments)]
    return subprocess.run(command, **{"capture_output": True, "text": True, "check": False, **options})


def analyze(
    source: Content,
    settings: Settings | None = None,
    *,
    path: str = "module.py",
    others: Mapping[str, Content] | None = None,
    **options: Any,
) -> Result:
    """Check a module, and rewrite it with `fix=True`.

    Args:
        source: the module; text is not dedented.
        settings: the settings; by default made of `options`.
        path: the path of the module in the project.
        others: the other modules of the project, by path.
        options: fields of the settings.

    Returns:
        The findings and the rewritten source.
    """
    files = {**(others or {}), path: source}
    data = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
    project = Project(ProjectFile(content, name) for name, content in data.items())
    return check_file(data[path], path, settings or Settings(**options), project)


def analyze_file(data: Content, path: str, **options: Any) -> Outcome:
    """Check a file of any kind, such as a notebook, as the runner does, and expect no error.

    Args:
        data: its content.
        path: its name, which says what kind of file it is.
        options: fields of the settings.
    """
    content = data.encode(errors="surrogateescape") if isinstance(data, str) else data
    outcome = check_text(content, path, Settings(**options))
    assert outcome.error is None
    return outcome


def replaced(text: str, replacements: Sequence[Replacement]) -> str:
    """Return a text with replacements made, the last one first."""
    lines = [*text.splitlines(keepends=True), ""]
    starts = [sum(map(len, lines[:number])) for number in range(len(lines))]
    for replacement in reversed(replacements):
        start, end = (
            starts[replacement.line - 1] + replacement.column - 1,
            starts[replacement.end_line - 1] + replacement.end_column - 1,
        )
        text = text[:start] + replacement.text + text[end:]
    return text
