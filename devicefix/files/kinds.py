"""The kind of a file, by its name."""

from __future__ import annotations

import os.path
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
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".jsonc": "json",
    ".jsonnet": "json",
    ".toml": "toml",
    ".sh": "shell",
    ".bash": "shell",
    ".mk": "make",
    "makefile": "make",
    "gnumakefile": "make",
}


class Kind(Enum):
    """How a file is read."""

    MODULE = "module"
    NOTEBOOK = "notebook"
    DOCS = "docs"  # Markdown or reStructuredText with blocks of code
    CONFIG = "config"  # a configuration file or a shell script
    OTHER = "other"  # requirements, a Dockerfile, C++: neither Python nor settings of the program


def kind_of(path: str) -> Kind:
    """Return the kind of a file; a name that says nothing is taken for a module."""
    if path.endswith(PYTHON):
        return Kind.MODULE
    if path.endswith(NOTEBOOK):
        return Kind.NOTEBOOK
    if path.lower().endswith(DOCS):
        return Kind.DOCS
    if language_of(path) is not None:
        return Kind.CONFIG
    name = os.path.basename(path).lower()
    return Kind.OTHER if name.endswith(_OTHER) or name.split(".")[0] in _CONTAINERS else Kind.MODULE


def is_python(path: str) -> bool:
    """Return whether a path names a Python file."""
    return path.endswith(PYTHON)


def language_of(path: str) -> str | None:
    """Return the language of a configuration file or script; None for other files."""
    name = os.path.basename(path).lower()
    return _LANGUAGES.get(name) or _LANGUAGES.get(os.path.splitext(name)[1])
