"""Configuration files and shell scripts beside the code: which they are, and what is found in them."""

from __future__ import annotations

import os.path

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


def language_of(path: str) -> str | None:
    """The language of a file, by its name; None for what is no configuration and no script."""
    name = os.path.basename(path).lower()
    return _LANGUAGES.get(name) or _LANGUAGES.get(os.path.splitext(name)[1])


def is_beside(path: str) -> bool:
    """Whether a path is that of a configuration file or a shell script."""
    return language_of(path) is not None
