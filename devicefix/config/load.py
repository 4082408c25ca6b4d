"""Find and read configuration files, and combine them with options."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from devicefix.config import sizes
from devicefix.config.settings import KEYS, ConfigError, Selection, Settings
from devicefix.config.values import KnownCodes, Origin, nearest

TABLE = "[tool.devicefix]"
_SHOWN = 60  # characters of a key in a message
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
        from devicefix.config.toml import position

        found = position(self.text, (*self.within, *keys)) if keys or self.within else None
        return ":".join(map(str, (self.file, *(found or ()))))

    def line(self, key: str) -> int | None:
        """Return the line of a key, from 1."""
        from devicefix.config.toml import position

        found = position(self.text, (*self.within, key))
        return found[0] if found else None


def find(start: Path) -> Path | None:
    """Return the nearest configuration file at or above a folder, or None.

    That is a .devicefix.toml, a devicefix.toml, or a pyproject.toml with a table for devicefix.
    """
    start = start.absolute()
    for folder in (start, *start.parents):
        for name in NAMES:
            file = folder / name
            if file.is_file() and (name != "pyproject.toml" or _is_for_devicefix(file)):
                return file
    return None


def read(file: Path) -> Document:
    """Read a configuration: `[tool.devicefix]` in pyproject.toml, the whole of any other file.

    A file of another name that has such a table is read like pyproject.toml.

    Raises:
        ConfigError: the file cannot be read, or is not TOML.
    """
    from devicefix.config.toml import MOST, TomlError, parse

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


def load(file: Path, known_codes: KnownCodes) -> Settings:
    """Return the settings that a configuration file makes.

    Args:
        file: the file to read.
        known_codes: returns the codes of all rules.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or holds an unknown key or a wrong value.
    """
    return settings_of(read(file), known_codes)


def settings_of(document: Document, known_codes: KnownCodes) -> Settings:
    """Return the settings that a configuration makes.

    Raises:
        ConfigError: it holds an unknown key or a wrong value.
    """
    origin = Origin(document.file.parent, known_codes)
    values: dict[str, Any] = {}
    where = f"{TABLE} " if document.within else ""
    for name, value in document.table.items():
        key = KEYS.get(name)
        if key is None:
            hint = nearest(name, KEYS)
            if name == "tool":
                hint = f": in a {document.file.name} the keys are at the top level, without {TABLE}"
            unknown = f"{where or 'the configuration '}has no key {name[:_SHOWN]!r}{hint}"
            raise ConfigError(f"{document.place(name)}: {unknown}")
        try:
            values[key.field] = key.kind.read(value, origin)
        except ValueError as problem:
            raise ConfigError(f"{document.place(name)}: {where}{name}: {problem}") from None
    return replace(Settings(root=origin.folder), **values)


def with_options(settings: Settings, options: Mapping[str, Any]) -> Settings:
    """Return settings with the command line's options, which override them or add to them.

    As in ruff, `--select` alone decides which rules are on; without it, the options change what the
    configuration selects.

    Args:
        settings: those of the configuration.
        options: the given options, by the names of `Settings`.

    Raises:
        ConfigError: the settings don't go together.
    """
    values = dict(options)
    for name in ("extend_exclude", "extend_per_file_ignores"):
        if name in values:
            values[name] = getattr(settings, name) + values[name]
    if "exclude" in values:
        values["root"] = Path()
    selection = Selection(**{name: values.pop(name, ()) for name in Selection._fields})
    if any(selection):
        values |= selection._asdict() | {"below": settings.selection}
    return replace(settings, **values).checked()


def with_values(settings: Settings, values: Mapping[str, Any], origin: Origin) -> Settings:
    """Return settings with values from a program, which override them as the command line's options do.

    Args:
        settings: those of the configuration.
        values: values as in the configuration, by key; None is the same as no value.
        origin: what paths and patterns are relative to, and the known codes.

    Raises:
        ConfigError: a value is wrong, or there is no such key.
    """
    options: dict[str, Any] = {}
    for name, value in values.items():
        key = KEYS.get(name)
        if key is None:
            raise ConfigError(f"there is no setting {name!r}{nearest(name, KEYS)}")
        try:
            if value is not None:
                options[key.field] = key.kind.read(_as_toml(value), origin)
        except ValueError as problem:
            raise ConfigError(f"{name}: {problem}") from None
    settings = with_options(settings, options)
    return replace(settings, root=origin.folder) if "exclude" in options else settings


def _as_toml(value: Any) -> Any:
    """Return a value with lists and dicts in place of other sequences and mappings."""
    if isinstance(value, Mapping):
        return {name: _as_toml(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return list(value)
    return value


def _is_for_devicefix(file: Path) -> bool:
    from devicefix.config.toml import TomlError, parse

    try:
        if b"devicefix" not in (data := sizes.read(file, sizes.size(sizes.LARGEST))):
            return False
        tools = parse(data)[1].get("tool")
        return isinstance(tools, dict) and "devicefix" in tools
    except TomlError:
        return True  # broken, and perhaps meant for devicefix: `read` reports what is wrong
    except OSError as problem:
        return problem.errno == errno.EFBIG  # likewise
