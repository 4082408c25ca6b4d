"""What to look for, where, and how: the settings, and their table in pyproject.toml."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

TARGETS = ("cuda", "accelerator")
ACCELERATOR_SINCE = (2, 6)


class ConfigError(Exception):
    """The configuration cannot be used; the message says why, and in which file."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How one run goes about its work.

    `select` and `ignore` hold codes of rules or beginnings of them: `DF1` is every rule whose code
    begins so. Nothing selected means the rules that are on by default. `exclude` holds patterns as
    in .gitignore, relative to the folder `root`. `fix` asks the engine for the new source, `replacements` for
    that of each fix by itself.
    `config_files` looks for configuration files and scripts in folders, too. `target` is what the
    result is to run on besides the CPU, and `torch_version` the oldest torch that it is to run with;
    None is the newest that devicefix knows. `cache_dir` keeps what was found; None for no cache.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    root: Path = field(default_factory=Path)
    unsafe_fixes: bool = False
    fix: bool = False
    replacements: bool = False
    jobs: int | None = None
    verbose: bool = False
    quiet: bool = False
    config_files: bool = False
    target: str = "cuda"
    torch_version: tuple[int, int] | None = None
    cache_dir: Path | None = None

    def enabled(self, code: str, default: bool = True) -> bool:
        """Whether a rule is on: where `select` and `ignore` both name it, the longer name wins.

        Args:
            code: the rule's code.
            default: whether the rule is on when nothing is selected.
        """
        selected = _longest(self.select, code) if self.select else int(default)
        return selected > _longest(self.ignore, code)


def _longest(prefixes: Iterable[str], code: str) -> int:
    return max((len(prefix) for prefix in prefixes if code.startswith(prefix)), default=0)


def load(settings: Settings, file: Path) -> Settings:
    """Put what a file's `[tool.devicefix]` says into the settings.

    Args:
        settings: what holds where the file says nothing.
        file: the file to read, of the form of pyproject.toml.

    Raises:
        ConfigError: the file cannot be read, is no TOML, or holds an unknown key or a wrong value.
    """
    try:
        return replace(settings, root=file.parent, **_checked(_table(file.read_bytes())))
    except OSError as problem:
        raise ConfigError(f"{file}: {problem.strerror or problem}") from None
    except ValueError as problem:  # bytes that do not decode, bad TOML, and what `_checked` found
        raise ConfigError(f"{file}: {problem}") from None


def checked(settings: Settings) -> Settings:
    """Settings that go together.

    Raises:
        ConfigError: they don't; the message says why.
    """
    version = settings.torch_version
    if settings.target == "accelerator" and version and version < ACCELERATOR_SINCE:
        given = "{}.{}".format(*version)
        raise ConfigError(f"target accelerator needs torch 2.6 or newer, and torch-version is {given}")
    return settings


def version(word: object) -> tuple[int, int]:
    """The version that "2.6" names.

    Raises:
        ValueError: it names none.
    """
    match = re.fullmatch(r"(\d+)\.(\d+)(\.\d+)?", word) if isinstance(word, str) else None
    if match is None:
        raise ValueError('must be a version such as "2.6"')
    return int(match[1]), int(match[2])


def find(start: Path) -> Path | None:
    """The nearest pyproject.toml at or above a folder that speaks of devicefix, if there is one."""
    start = start.absolute()
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        try:
            if b"devicefix" in (data := file.read_bytes()) and "devicefix" in _tools(data):
                return file
        except ValueError:
            return file  # broken, and perhaps meant for us: `load` says what is wrong with it
        except OSError:
            continue
    return None


def codes(words: Iterable[str]) -> tuple[str, ...]:
    """The codes in `DF101,DF2` and the like, checked against the rules.

    Raises:
        ValueError: no rule's code is one of the words or begins with it.
    """
    found = tuple(code for word in words for code in word.upper().replace(",", " ").split())
    if found:
        from devicefix.rules import RULES

        for code in found:
            if not any(known.startswith(code) for known in RULES):
                raise ValueError(f"no rule has the code {code!r}{nearest(code, RULES)}")
    return found


def nearest(word: str, known: Iterable[str]) -> str:
    """What was perhaps meant, as the end of an error message; empty where nothing is near."""
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _tools(data: bytes) -> Mapping[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    tools = tomllib.loads(data.decode()).get("tool", {})
    return tools if isinstance(tools, dict) else {}


def _table(data: bytes) -> Mapping[str, Any]:
    table = _tools(data).get("devicefix", {})
    if not isinstance(table, dict):
        raise ValueError("[tool.devicefix] must be a table")
    return table


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("must be a list of strings")
    return tuple(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("must be a whole number from 1")
    return value


def _target(value: object) -> str:
    if value not in TARGETS:
        raise ValueError(f"must be one of {', '.join(map(repr, TARGETS))}")
    return str(value)


_READERS: dict[str, Callable[[object], object]] = {
    "select": lambda value: codes(_strings(value)),
    "ignore": lambda value: codes(_strings(value)),
    "exclude": _strings,
    "unsafe-fixes": _flag,
    "jobs": _count,
    "verbose": _flag,
    "quiet": _flag,
    "config-files": _flag,
    "target": _target,
    "torch-version": version,
}


def _checked(table: Mapping[str, Any]) -> dict[str, Any]:
    """The values for `Settings`, each read as its key demands."""
    values = {}
    for key, value in table.items():
        if key not in _READERS:
            raise ValueError(f"[tool.devicefix] has no key {key!r}{nearest(key, _READERS)}")
        try:
            values[key.replace("-", "_")] = _READERS[key](value)
        except ValueError as problem:
            raise ValueError(f"[tool.devicefix] {key}: {problem}") from None
    return values
