"""The languages of configuration files and shell scripts."""

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
    """Return the language of a configuration file or script by its name, or None for other files."""
    name = os.path.basename(path).lower()
    return _LANGUAGES.get(name) or _LANGUAGES.get(os.path.splitext(name)[1])


def is_beside(path: str) -> bool:
    """Return whether a path is that of a configuration file or a shell script."""
    return language_of(path) is not None
