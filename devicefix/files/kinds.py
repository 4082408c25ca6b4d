"""The kind of a file, by its name."""

from __future__ import annotations

import os.path
import re
from enum import Enum

PYTHON = (".py", ".pyi")
NOTEBOOK = ".ipynb"
_OTHER = (
    ".txt", ".in", ".cfg", ".ini", ".lock", ".env", ".dockerfile",
    ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".csv", ".log",
)  # fmt: skip
_CONTAINERS = ("dockerfile", "containerfile")
DOCS = (".md", ".markdown", ".rst")
_LANGUAGES = {
    ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".jsonc": "json", ".jsonnet": "json", ".toml": "toml",
    ".sh": "shell", ".bash": "shell", ".slurm": "shell", ".sbatch": "shell",
    ".mk": "make", "makefile": "make", "gnumakefile": "make",
}  # fmt: skip


class Environment(Enum):
    """The kind of a file of an environment."""

    CFG = "setup.cfg"
    COMPOSE = "compose"
    CONDA = "conda"
    DOCKERFILE = "dockerfile"
    PROJECT = "project"
    REQUIREMENTS = "requirements"
    SCRIPT = "script"
    WORKFLOW = "workflow"


_ENVIRONMENTS = (
    (Environment.REQUIREMENTS, re.compile(r"[\w.-]*(?:requirements?|constraints?)[\w.-]*\.(?:txt|in)")),
    (Environment.CONDA, re.compile(r"(?:[\w.-]*env(?:ironment)?[\w.-]*|conda[\w.-]*)\.ya?ml")),
    (Environment.PROJECT, re.compile(r"pyproject\.toml")),
    (Environment.CFG, re.compile(r"setup\.cfg")),
    (Environment.DOCKERFILE, re.compile(r"(?:dockerfile|containerfile)(?:[.-][\w.-]*)?|[\w.-]+\.dockerfile")),
    (Environment.COMPOSE, re.compile(r"(?:docker-)?compose[\w.-]*\.ya?ml")),
    (Environment.SCRIPT, re.compile(r"[^/]*\.(?:sh|bash|slurm|sbatch|mk)|(?:gnu)?makefile")),
    (Environment.WORKFLOW, re.compile(r"\.gitlab-ci\.yml|\.travis\.yml|azure-pipelines[\w.-]*\.ya?ml")),
)
_WORKFLOW = re.compile(r"(?:.*/)?\.(?:github/(?:workflows|actions)|circleci|buildkite)/.*\.ya?ml")


class Kind(Enum):
    """How a file is read."""

    MODULE = "module"
    NOTEBOOK = "notebook"
    DOCS = "docs"  # Markdown or reStructuredText with blocks of code
    CONFIG = "config"  # a configuration file or a shell script
    ENVIRONMENT = "environment"  # what a project installs: requirements, a Dockerfile
    OTHER = "other"  # C++, data: neither Python nor settings of the program


def kind_of(path: str) -> Kind:
    """Return the kind of a file; a name that says nothing is taken for a module."""
    if path.endswith(PYTHON):
        return Kind.MODULE
    if path.endswith(NOTEBOOK):
        return Kind.NOTEBOOK
    if path.lower().endswith(DOCS):
        return Kind.DOCS
    if environment_of(path) is not None:
        return Kind.ENVIRONMENT
    if language_of(path) is not None:
        return Kind.CONFIG
    name = os.path.basename(path).lower()
    return Kind.OTHER if name.endswith(_OTHER) or name.split(".")[0] in _CONTAINERS else Kind.MODULE


def environment_of(path: str) -> Environment | None:
    """Return what a file of an environment is, by its name; None for other files."""
    folder, name = os.path.split(path.lower())
    if os.path.basename(folder) == "requirements" and name.endswith((".txt", ".in")):
        return Environment.REQUIREMENTS
    if _WORKFLOW.fullmatch(path.lower().replace(os.sep, "/")):
        return Environment.WORKFLOW
    return next((kind for kind, pattern in _ENVIRONMENTS if pattern.fullmatch(name)), None)


def is_python(path: str) -> bool:
    """Return whether a path names a Python file."""
    return path.endswith(PYTHON)


def language_of(path: str) -> str | None:
    """Return the language of a configuration file or script; None for other files."""
    name = os.path.basename(path).lower()
    return _LANGUAGES.get(name) or _LANGUAGES.get(os.path.splitext(name)[1])
