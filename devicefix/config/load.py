"""Find and read configuration files, and combine them with options."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from devicefix.config import sizes
from devicefix.config.settings import KEYS, ConfigError, Settings
from devicefix.config.toml import MOST, TomlError, parse, position
from devicefix.config.values import KnownCodes, Origin, nearest

TABLE = "[tool.devicefix]"
_SHOWN = 60  # characters of a key in a message
_MOST_EXTENDED = 20  # files that a configuration may extend, each by the next
_SELECTING = ("select", "extend_select", "ignore")
_FIXING = ("fixable", "extend_fixable", "unfixable")
NAMES = (".devicefix.toml", "devicefix.toml", "pyproject.toml")  # the first that a folder has is read


class Document(NamedTuple):
    """A configuration file.

    Attributes:
        file: its path.
        text: its text.
        table: the keys for devicefix, with their values.
        within: the names of the tables that these keys are in.
    """

    file: Path
    text: str
    table: Mapping[str, Any]
    within: tuple[str, ...]

    def place(self, *keys: str) -> str:
        """Return a key's position for a message: `file:line:column`, or less where that is not known."""
        found = position(self.text, (*self.within, *keys)) if keys or self.within else None
        return ":".join(map(str, (self.file, *(found or ()))))

    def line(self, key: str) -> int | None:
        """Return the line of a key, from 1."""
        found = position(self.text, (*self.within, key))
        return found[0] if found else None


def find(start: Path) -> Path | None:
    """Return the nearest configuration file at or above a folder, or None.

    That is a .devicefix.toml, a devicefix.toml, or a pyproject.toml with a table for devicefix.
    """
    start = start.absolute()
    return next(filter(None, map(find_in, (start, *start.parents))), None)


def find_in(folder: Path) -> Path | None:
    """Return the configuration file in a folder, or None; see `find`."""
    for name in NAMES:
        file = folder / name
        if stat.S_ISREG(sizes.mode(file)) and (name != "pyproject.toml" or _is_for_devicefix(file)):
            return file
    return None


def read(file: Path) -> Document:
    """Read a configuration: `[tool.devicefix]` in pyproject.toml, the whole of any other file.

    A file of another name that has such a table is read like pyproject.toml.

    Raises:
        ConfigError: the file cannot be read, or is not TOML.
    """
    try:
        text, document = parse(sizes.read(file, MOST))
    except OSError as problem:
        raise ConfigError(f"{file}: {problem.strerror or problem}") from None
    except TomlError as problem:
        raise ConfigError("{}:{}:{}: {}".format(file, *problem.position, problem)) from None
    if file.name != "pyproject.toml" and (file.name in NAMES or "tool" not in document):
        return Document(file, text, document, ())
    tools = document.get("tool", {})
    table = tools.get("devicefix", {}) if isinstance(tools, dict) else {}
    found = Document(file, text, table, ("tool", "devicefix"))
    if not isinstance(table, dict):
        raise ConfigError(f"{found.place()}: {TABLE} must be a table")
    return found


def load(file: Path | None, known_codes: KnownCodes) -> Settings:
    """Return the settings that a configuration file makes, with those of the files that it extends.

    Args:
        file: the file to read; None for the settings without one.
        known_codes: returns the codes of all rules.

    Raises:
        ConfigError: a file cannot be read, is not TOML, or holds an unknown key or a wrong value.
    """
    settings = Settings()
    for _, values in reversed(chain(file, known_codes)):
        settings = combined(settings, values)
    return settings


def chain(file: Path | None, known_codes: KnownCodes) -> list[tuple[Document, dict[str, Any]]]:
    """Return a configuration and those that it extends, each with its values by the names of `Settings`.

    Without a file there are none.

    Raises:
        ConfigError: as for `load`.
    """
    found: list[tuple[Document, dict[str, Any]]] = []
    while file is not None:
        try:
            document = read(file)
        except ConfigError as problem:
            raise ConfigError(f"{_extend_of(found)}{problem}") from None
        values = _values(document, known_codes)
        found.append((document, values))
        file = values.get("extend")
        if len(found) > _MOST_EXTENDED:
            raise ConfigError(f"{_extend_of(found)}more than {_MOST_EXTENDED} files extend one another")
        real = map(os.path.realpath, [each.file for each, _ in found])
        if file is not None and os.path.realpath(file) in real:
            raise ConfigError(f"{_extend_of(found)}{file} extends itself")
    return found


def _extend_of(found: list[tuple[Document, dict[str, Any]]]) -> str:
    """Return the position of the key `extend` in the last of some configurations, for a message."""
    if not found:
        return ""
    document, _ = found[-1]
    return f"{document.place('extend')}: {f'{TABLE} ' if document.within else ''}extend: "


def _values(document: Document, known_codes: KnownCodes) -> dict[str, Any]:
    """Return the values of a configuration by the names of `Settings`.

    Raises:
        ConfigError: it holds an unknown key or a wrong value.
    """
    table = f"{TABLE} " if document.within else ""
    if "tool" in document.table:
        unknown = f"{table or 'the configuration '}has no key 'tool'"
        hint = f"in {document.file.name}, keys belong at the top level, without {TABLE}"
        raise ConfigError(f"{document.place('tool')}: {unknown}: {hint}")
    try:
        return read_table(document.table, Origin(document.file.parent, known_codes))
    except KeyProblem as problem:
        subject = table or ("the configuration " if problem.unknown else "")
        raise ConfigError(f"{document.place(problem.key)}: {subject}{problem}") from None


class KeyProblem(ValueError):
    """A key or its value is wrong.

    Attributes:
        key: the key.
        unknown: whether there is no such key.
    """

    def __init__(self, key: str, message: str, unknown: bool = False) -> None:
        super().__init__(message)
        self.key = key
        self.unknown = unknown


def read_table(table: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    """Return the values of a table of keys by the names of `Settings`.

    Args:
        table: the table, as TOML has it.
        origin: the source of the values.

    Raises:
        KeyProblem: there is no such key, or its value is wrong.
    """
    values: dict[str, Any] = {}
    for name, value in table.items():
        key = KEYS.get(name)
        if key is None:
            hint = "; move its keys one level up" if name == "lint" else nearest(name, KEYS)
            raise KeyProblem(name, f"has no key {name[:_SHOWN]!r}{hint}", unknown=True)
        try:
            values[key.field] = key.read(value, origin)
        except ValueError as problem:
            raise KeyProblem(name, f"{name}: {problem}") from None
    return values


def combined(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Return settings with values of another source, which override them or add to them.

    As in ruff, a `select` alone decides which rules are on; without it, the values change what the settings
    select. The same holds for `fixable`.

    Args:
        settings: the settings.
        values: the values, by the names of `Settings`.
    """
    values = dict(values)
    for name in ("extend_exclude", "extend_per_file_ignores"):
        if name in values:
            values[name] = getattr(settings, name) + values[name]
    for below, selections, names in (
        ("below", settings.selections, _SELECTING),
        ("fixable_below", settings.fixable_selections, _FIXING),
    ):
        given = [values.pop(name, ()) for name in names]
        if any(given):
            known = tuple(selection for selection in selections if any(selection))
            values |= {below: known, **dict(zip(names, given, strict=True))}
    return replace(settings, **values)


def with_values(settings: Settings, values: Mapping[str, Any], origin: Origin) -> Settings:
    """Return settings with values from a program, which override them as the command line's options do.

    Args:
        settings: those of the configuration.
        values: values as in the configuration, by key; None is the same as no value.
        origin: what paths and patterns are relative to, and the known codes.

    Raises:
        ConfigError: a value is wrong, or there is no such key.
    """
    table = {name: _as_toml(value) for name, value in values.items() if value is not None}
    try:
        options = read_table(table, origin)
    except KeyProblem as problem:
        unknown = f"there is no setting {problem.key!r}{nearest(problem.key, KEYS)}"
        raise ConfigError(unknown if problem.unknown else str(problem)) from None
    return combined(settings, options).checked()


def _as_toml(value: Any) -> Any:
    """Return a value with lists and dicts in place of other sequences and mappings."""
    if isinstance(value, Mapping):
        return {name: _as_toml(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return list(value)
    return value


def _is_for_devicefix(file: Path) -> bool:
    try:
        if b"devicefix" not in (data := sizes.read(file, sizes.size(sizes.LARGEST))):
            return False
        tools = parse(data)[1].get("tool")
        return isinstance(tools, dict) and "devicefix" in tools
    except TomlError:
        return True  # broken, and perhaps meant for devicefix: `read` reports what is wrong
    except OSError as problem:
        return problem.errno == errno.EFBIG  # likewise
