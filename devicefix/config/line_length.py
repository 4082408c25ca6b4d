"""Find how long the lines of a project may be, by the settings of its formatter or linter."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Any

from devicefix.config import sizes
from devicefix.config.toml import MOST, TomlError, parse

_DEFAULT = 88  # of ruff and black: https://docs.astral.sh/ruff/settings/#line-length
_KEYS = {"ruff": "line-length", "black": "line-length", "yapf": "column_limit"}
_RUFF = ("ruff.toml", ".ruff.toml")
_INI = ("setup.cfg", "tox.ini", ".flake8")
_SECTIONS = ("flake8", "pycodestyle")


def line_length_in(folder: str) -> int | None:
    """Return how long lines may be by the configuration in a folder, in characters.

    Args:
        folder: the folder.

    Returns:
        None where nothing in the folder says so, or where it can't be read.
    """
    try:
        return _of_toml(Path(folder)) or _of_ini(Path(folder))
    except (OSError, TomlError, configparser.Error, ValueError):
        return None


def _of_toml(folder: Path) -> int | None:
    """Return the line length in `ruff.toml` or `pyproject.toml`.

    Raises:
        OSError, TomlError, ValueError: a file can't be read.
    """
    for name in (*_RUFF, "pyproject.toml"):
        if (folder / name).is_file():
            _, content = parse(sizes.read(folder / name, MOST))
            tools: dict[str, Any] = {"ruff": content} if name in _RUFF else content.get("tool", {})
            for tool, key in _KEYS.items():
                if tool in tools:
                    return int(tools[tool].get(key, _DEFAULT))
    return None


def _of_ini(folder: Path) -> int | None:
    """Return the line length of flake8 or pycodestyle.

    Raises:
        OSError, configparser.Error, ValueError: a file can't be read.
    """
    for name in _INI:
        if (folder / name).is_file():
            content = configparser.ConfigParser(interpolation=None)
            content.read_string(sizes.read(folder / name, MOST).decode())
            for section in _SECTIONS:
                for key in ("max-line-length", "max_line_length"):
                    if content.has_option(section, key):
                        return content.getint(section, key)
    return None
