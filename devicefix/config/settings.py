"""What to look for, where, and how: the settings, and the file that holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from devicefix.config.keys import KEYS, Exclusion, PerFileIgnores
from devicefix.config.keys import TARGETS as TARGETS
from devicefix.config.keys import codes as codes
from devicefix.config.keys import nearest as nearest
from devicefix.config.keys import version as version

ACCELERATOR_SINCE = (2, 6)
TABLE = "[tool.devicefix]"
# The files that may hold the configuration of a folder; the first that does is read.
NAMES = (".devicefix.toml", "devicefix.toml", "pyproject.toml")


class ConfigError(Exception):
    """The configuration cannot be used; the message says why, and in which file."""


class Selection(NamedTuple):
    """Codes of rules, or beginnings of them, that one place says to select and to ignore."""

    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def enables(self, code: str, before: bool) -> bool:
        """Whether a rule is on that was, or was not, before anything is said here."""
        chosen = _longest(self.select + self.extend_select, code)
        dropped = _longest(self.ignore, code)
        if self.select or chosen > dropped:
            return chosen > dropped
        return before and not dropped


@dataclass(frozen=True, slots=True)
class Settings:
    """How one run goes about its work.

    `select` and `ignore` hold codes of rules or beginnings of them: `DF1` is every rule whose code
    begins so. Nothing selected means the rules that are on by default; `extend_select` adds to them. The
    command line changes what the configuration `below` it selects. `per_file_ignores` and
    `extend_per_file_ignores` are rules that are off in some files; `off` are those in the file at hand.
    `exclude` holds patterns as in .gitignore, relative to the folder `root`, and `extend_exclude` more of
    them. `baseline` is the file that holds what is not new. `fix` asks the engine for the new source,
    `replacements` for that of each fix by itself.
    `config_files` looks for configuration files and scripts in folders, too, and `docs` for code in Markdown
    and reStructuredText. `target` is what the
    result is to run on besides the CPU, and `torch_version` the oldest torch that it is to run with;
    None is the newest that devicefix knows. `cache_dir` keeps what was found; None for no cache.
    `ignore_noqa` keeps what a comment silences, and `executor` is the address of a cluster that does the
    work.
    `output_format` is a name in `devicefix.report.FORMATS`, None for what suits the place that it goes to.
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
    docs: bool = False
    target: str = "cuda"
    torch_version: tuple[int, int] | None = None
    cache_dir: Path | None = None
    extend_select: tuple[str, ...] = ()
    below: Selection = field(default_factory=Selection)
    per_file_ignores: tuple[PerFileIgnores, ...] = ()
    extend_per_file_ignores: tuple[PerFileIgnores, ...] = ()
    off: tuple[str, ...] = ()
    extend_exclude: tuple[Exclusion, ...] = ()
    baseline: Path | None = None
    ignore_noqa: bool = False
    executor: str | None = None
    output_format: str | None = None

    @property
    def selection(self) -> Selection:
        """What these settings themselves say of rules."""
        return Selection(self.select, self.extend_select, self.ignore)

    def enabled(self, code: str, default: bool = True) -> bool:
        """Whether a rule is on: where `select` and `ignore` both name it, the longer name wins.

        Args:
            code: the rule's code.
            default: whether the rule is on when nothing is selected.
        """
        return _enabled(self.selection, self.below, code, default) and not code.startswith(self.off)

    def for_file(self, path: str) -> Settings:
        """The settings for one file, with what is ignored in it."""
        listed = self.per_file_ignores + self.extend_per_file_ignores
        if not listed:
            return self
        from devicefix.config.globs import matches

        off = tuple(code for each in listed if matches(path, each.pattern, each.root) for code in each.codes)
        return replace(self, off=off) if off else self


@cache  # asked for each rule and file
def _enabled(selection: Selection, below: Selection, code: str, default: bool) -> bool:
    return selection.enables(code, below.enables(code, default))


def _longest(prefixes: Iterable[str], code: str) -> int:
    return max((len(prefix) for prefix in prefixes if code.startswith(prefix)), default=0)


class Written(NamedTuple):
    """What a configuration file says.

    Attributes:
        file: where it stands.
        text: all of it.
        table: the keys for devicefix, and what they hold.
        within: the tables that these keys are in.
    """

    file: Path
    text: str
    table: Mapping[str, Any]
    within: tuple[str, ...]

    def place(self, *keys: str) -> str:
        """Where a key stands, for a message: `file:line:column`, or less where that is not known."""
        from devicefix.config.toml import position

        found = position(self.text, (*self.within, *keys)) if keys or self.within else None
        return ":".join(map(str, (self.file, *(found or ()))))

    def line(self, key: str) -> int | None:
        """The line of a key."""
        from devicefix.config.toml import position

        found = position(self.text, (*self.within, key))
        return found[0] if found else None


def read(file: Path) -> Written:
    """Read a configuration: `[tool.devicefix]` in pyproject.toml, the whole of any other file.

    A file of another name that has such a table is read like pyproject.toml.

    Raises:
        ConfigError: the file cannot be read, or is no TOML.
    """
    from devicefix.config.toml import TomlError, parse

    try:
        text, document = parse(file.read_bytes())
    except OSError as problem:
        raise ConfigError(f"{file}: {problem.strerror or problem}") from None
    except TomlError as problem:
        raise ConfigError("{}:{}:{}: {}".format(file, *problem.position, problem)) from None
    if file.name != "pyproject.toml" and (file.name in NAMES or "tool" not in document):
        return Written(file, text, document, ())
    tools = document.get("tool", {})
    table = tools.get("devicefix", {}) if isinstance(tools, dict) else {}
    written = Written(file, text, table, ("tool", "devicefix"))
    if not isinstance(table, dict):
        raise ConfigError(f"{written.place()}: {TABLE} must be a table")
    return written


def load(settings: Settings, file: Path) -> Settings:
    """Put what a configuration file says into the settings.

    Args:
        settings: what holds where the file says nothing.
        file: the file to read.

    Raises:
        ConfigError: the file cannot be read, is no TOML, or holds an unknown key or a wrong value.
    """
    return applied(settings, read(file))


def applied(settings: Settings, written: Written) -> Settings:
    """The settings with what a configuration says in the place of theirs.

    Raises:
        ConfigError: it holds an unknown key or a wrong value.
    """
    values: dict[str, Any] = {}
    where = f"{TABLE} " if written.within else ""
    for name, value in written.table.items():
        key = KEYS.get(name)
        if key is None:
            hint = nearest(name, KEYS)
            if name == "tool":
                hint = f": in a {written.file.name} the keys stand at the top, without {TABLE}"
            unknown = f"{where or 'the configuration '}has no key {name!r}{hint}"
            raise ConfigError(f"{written.place(name)}: {unknown}")
        try:
            values[key.field] = key.read(value, written.file.parent)
        except ValueError as problem:
            raise ConfigError(f"{written.place(name)}: {where}{name}: {problem}") from None
    return replace(settings, root=written.file.parent, **values)


def combined(settings: Settings, options: Mapping[str, Any]) -> Settings:
    """The settings with the command line's options, which take the place of theirs or add to them.

    As with ruff, `--select` says all about which rules are on; without it, the options change what is on
    below them.

    Args:
        settings: those of the configuration.
        options: what was given, by the names of `Settings`.
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
    return checked(replace(settings, **values))


def with_values(settings: Settings, values: Mapping[str, Any], folder: Path | None = None) -> Settings:
    """The settings with values that a program gives, which go before theirs as the command line's do.

    Args:
        settings: those of the configuration.
        values: values as in the configuration, by its names; None is as good as nothing.
        folder: what paths and patterns are relative to, by default the current folder.

    Raises:
        ConfigError: a value makes no sense, or there is no such name.
    """
    options: dict[str, Any] = {}
    root = folder or Path()
    for name, value in values.items():
        key = KEYS.get(name)
        if key is None:
            raise ConfigError(f"no setting is called {name!r}{nearest(name, KEYS)}")
        try:
            if value is not None:
                options[key.field] = key.read(_as_in_toml(value), root)
        except ValueError as problem:
            raise ConfigError(f"{name}: {problem}") from None
    settings = combined(settings, options)
    return replace(settings, root=root) if "exclude" in options else settings


def _as_in_toml(value: Any) -> Any:
    """A value with lists and tables for all that is like them."""
    if isinstance(value, Mapping):
        return {name: _as_in_toml(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return list(value)
    return value


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


def find(start: Path) -> Path | None:
    """The nearest configuration at or above a folder, if there is one.

    That is a .devicefix.toml, a devicefix.toml, or a pyproject.toml that speaks of devicefix.
    """
    start = start.absolute()
    for folder in (start, *start.parents):
        for name in NAMES:
            file = folder / name
            if file.is_file() and (name != "pyproject.toml" or _speaks_of_us(file)):
                return file
    return None


def _speaks_of_us(file: Path) -> bool:
    from devicefix.config.toml import TomlError, parse

    try:
        if b"devicefix" not in (data := file.read_bytes()):
            return False
        tools = parse(data)[1].get("tool")
        return isinstance(tools, dict) and "devicefix" in tools
    except TomlError:
        return True  # broken, and perhaps meant for us: `read` says what is wrong with it
    except OSError:
        return False
