"""Fixtures that many tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers import Cli, Git, ProjectFolder
from running import ProgramFolder

from devicefix.config.settings import KEYS


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectFolder:
    """Return an empty folder, which is the current one during the test."""
    monkeypatch.chdir(tmp_path)
    return ProjectFolder(tmp_path)


@pytest.fixture
def cli(project: ProjectFolder, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Return the command line, to run in the folder `project`, without settings from the environment."""
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
