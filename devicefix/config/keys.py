"""The keys of the configuration: the one place that says what each is called, means, and may hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

TARGETS = ("cuda", "accelerator")


class PerFileIgnores(NamedTuple):
    """Rules that are off in some files: `pattern` is a glob, relative to the folder `root`."""

    pattern: str
    codes: tuple[str, ...]
    root: Path


class Exclusion(NamedTuple):
    """A pattern as in .gitignore, relative to the folder `root`."""

    pattern: str
    root: Path


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the configuration.

    Attributes:
        name: as it is written in the configuration; the option of the command line is `--name`.
        type: what it holds, as a type of Python.
        default: what holds where nothing is said, as TOML, or in words.
        summary: one line, which is also the help of its option.
        details: what else there is to know, as Markdown; may be empty.
        example: a line of TOML, as in `devicefix.toml`.
        read: makes the value for `Settings` from that in a file, and the file's folder.
        variable: of the environment; it takes the place of the key, and the option that of both.
    """

    name: str
    type: str
    default: str
    summary: str
    details: str
    example: str
    read: Callable[[Any, Path], object]
    variable: str | None = None

    @property
    def field(self) -> str:
        """What `Settings`, and Python, call it."""
        return self.name.replace("-", "_")


def codes(words: Iterable[str]) -> tuple[str, ...]:
    """The codes in `DF101,DF2` and the like, checked against the rules.

    Raises:
        ValueError: no rule's code is one of the words or begins with it.
    """
    found = tuple(code for word in words for code in word.upper().replace(",", " ").split())
    if found:
        from devicefix.rules.registry import RULES

        for code in found:
            if not any(known.startswith(code) for known in RULES):
                raise ValueError(f"no rule has the code {code!r}{nearest(code, RULES)}")
    return found


def pairs(words: Iterable[str], root: Path) -> tuple[PerFileIgnores, ...]:
    """What `tests/*:DF101,setup.py:DF2` and the like say.

    Raises:
        ValueError: a word is no pattern and code with a colon between them, or there is no such code.
    """
    found: dict[str, list[str]] = {}
    for pair in (pair for word in words for pair in word.split(",") if pair.strip()):
        pattern, colon, code = (part.strip() for part in pair.rpartition(":"))
        if not (pattern and colon and code):
            raise ValueError(f'{pair.strip()!r} is no pair of a pattern and a code, such as "tests/*:DF101"')
        found.setdefault(pattern, []).append(code)
    return _ignores(found, root)


def version(word: object) -> tuple[int, int]:
    """The version that "2.6" names.

    Raises:
        ValueError: it names none.
    """
    match = re.fullmatch(r"(\d+)\.(\d+)(\.\d+)?", word) if isinstance(word, str) else None
    if match is None:
        raise ValueError('must be a version such as "2.6"')
    return int(match[1]), int(match[2])


def nearest(word: str, known: Iterable[str]) -> str:
    """What was perhaps meant, as the end of an error message; empty where nothing is near."""
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=1, cutoff=0.7)  # below, any two codes would be near
    return f"; did you mean {close[0]!r}?" if close else ""


# -- what a key may hold -------------------------------------------------------------------------------


def _strings(value: object, folder: Path | None = None) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("must be a list of strings")
    return tuple(value)


def _codes(value: object, folder: Path) -> tuple[str, ...]:
    return codes(_strings(value))


def _exclusions(value: object, folder: Path) -> tuple[Exclusion, ...]:
    return tuple(Exclusion(pattern, folder) for pattern in _strings(value))


def _per_file(value: object, folder: Path) -> tuple[PerFileIgnores, ...]:
    if not isinstance(value, dict):
        raise ValueError('must be a table of patterns and codes, such as {"tests/*" = ["DF101"]}')
    return _ignores(value, folder)


def _ignores(table: dict[str, Any], root: Path) -> tuple[PerFileIgnores, ...]:
    from devicefix.config.globs import compiled

    found = []
    for pattern, words in table.items():
        try:
            compiled(pattern, root)
            found.append(PerFileIgnores(pattern, codes(_strings(words)), root))
        except ValueError as problem:
            raise ValueError(f"{pattern!r}: {problem}") from None
    return tuple(found)


def _flag(value: object, folder: Path) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _count(value: object, folder: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("must be a whole number from 1")
    return value


def _target(value: object, folder: Path) -> str:
    if value not in TARGETS:
        raise ValueError(f"must be one of {', '.join(map(repr, TARGETS))}")
    return str(value)


def _format(value: object, folder: Path) -> str:
    from devicefix.report import FORMATS

    if not isinstance(value, str) or value not in FORMATS:
        close = nearest(value, FORMATS) if isinstance(value, str) else ""
        raise ValueError(f"must be one of {', '.join(map(repr, FORMATS))}{close}")
    return value


def _path(value: object, folder: Path) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("must be a path")
    return folder / value


def _path_inside(value: Any, root: Path) -> Path:
    """A folder that is written to: a configuration that comes with somebody's code says no other place."""
    path = _path(value, root)
    if not path.resolve().is_relative_to(root.resolve()):
        raise ValueError("must be inside the folder of the configuration; elsewhere with --cache-dir only")
    return path


# -- the keys ------------------------------------------------------------------------------------------

_GLOBS = (
    "A pattern is matched against the path, where `*` also matches `/`, and against the name alone: `tests/*`"
    " is every file below `tests`, `setup.py` every file of that name. `?`, `[a-z]`, `{a,b}` and `**/` mean"
    " what they do in a shell. With `!` in front, a pattern is for all files that it does not match."
)

_TABLE = (
    Key(
        "select",
        "list[str]",
        "the rules that are on by default",
        "Only the rules with these codes: DF101,DF2 and so on.",
        "A code, or the beginning of one: `DF1` is every rule whose code begins so, `DF` all of them, also"
        " those that are off by default. Where `select` and `ignore` both name a rule, the longer name wins;"
        " where they are equal, `ignore` does. On the command line, `--select` takes the place of `select`,"
        " `extend-select` and `ignore` in the configuration.",
        'select = ["DF1", "DF201"]',
        _codes,
    ),
    Key(
        "extend-select",
        "list[str]",
        "[]",
        "Also the rules with these codes, besides those that are selected or on by default.",
        "On the command line, `--extend-select` adds to what the configuration selects.",
        'extend-select = ["DF001"]',
        _codes,
    ),
    Key(
        "ignore",
        "list[str]",
        "[]",
        "Not the rules with these codes: DF101,DF2 and so on.",
        "On the command line, `--ignore` adds to what the configuration ignores.",
        'ignore = ["DF702"]',
        _codes,
    ),
    Key(
        "per-file-ignores",
        "dict[str, list[str]]",
        "{}",
        "Not these rules in these files: tests/*:DF101 and so on.",
        "What is ignored for a file stays off there, whatever selects it. " + _GLOBS,
        'per-file-ignores = { "tests/*" = ["DF201"], "!src/*" = ["DF7"] }',
        _per_file,
    ),
    Key(
        "extend-per-file-ignores",
        "dict[str, list[str]]",
        "{}",
        "As --per-file-ignores, but in addition to what the configuration ignores.",
        "",
        'extend-per-file-ignores = { "scripts/*" = ["DF101"] }',
        _per_file,
    ),
    Key(
        "exclude",
        "list[str]",
        "[]",
        "Leave files out; a pattern as in .gitignore.",
        "Patterns are relative to the folder of the configuration, on the command line to the current one,"
        " where `--exclude` takes the place of this key. Left out in any case is what git ignores, and"
        " folders such as `.venv` and `node_modules`. A file that is named on the command line is never left"
        " out.",
        'exclude = ["third_party/", "*_pb2.py"]',
        _strings,
    ),
    Key(
        "extend-exclude",
        "list[str]",
        "[]",
        "Leave these files out as well; a pattern as in .gitignore.",
        "On the command line, `--extend-exclude` adds to what the configuration leaves out.",
        'extend-exclude = ["legacy/"]',
        _exclusions,
    ),
    Key(
        "baseline",
        "path",
        "none",
        "Report only what is not in this file, which --write-baseline makes.",
        "The path is relative to the folder of the configuration.",
        'baseline = "devicefix-baseline.json"',
        _path,
    ),
    Key(
        "unsafe-fixes",
        "bool",
        "false",
        "Apply also what may change a run on CUDA.",
        "",
        "unsafe-fixes = true",
        _flag,
    ),
    Key(
        "config-files",
        "bool",
        "false",
        "Look at YAML, JSON, TOML and shell scripts in folders, too; they are never changed.",
        "",
        "config-files = true",
        _flag,
    ),
    Key(
        "docs",
        "bool",
        "false",
        "Look at blocks of Python in Markdown and reStructuredText in folders, too.",
        "Each block is a module of its own, and rewritten like one. A file that is named on the command line"
        " is looked at in any case.",
        "docs = true",
        _flag,
    ),
    Key(
        "target",
        '"cuda" | "accelerator"',
        '"cuda"',
        "What to run on besides the CPU: CUDA (the default), or whatever torch.accelerator finds.",
        "",
        'target = "accelerator"',
        _target,
    ),
    Key(
        "torch-version",
        "str",
        "the newest that devicefix knows",
        "The oldest torch that the result must run with: what --target accelerator may use.",
        "",
        'torch-version = "2.6"',
        lambda value, folder: version(value),
    ),
    Key(
        "output-format",
        '"full" | "concise" | "grouped" | "json" | "json-lines" | "sarif" | "github" | "gitlab" | "junit"'
        ' | "html"',
        "full on a terminal, else concise",
        "How to tell what was found; by default full on a terminal, and concise elsewhere.",
        "Of `devicefix check`. The environment variable `DEVICEFIX_OUTPUT_FORMAT` takes its place, and the"
        " option that of both.",
        'output-format = "grouped"',
        _format,
        "DEVICEFIX_OUTPUT_FORMAT",
    ),
    Key(
        "cache-dir",
        "path",
        ".devicefix_cache beside the configuration",
        "Where to keep what was found; by default .devicefix_cache beside the configuration.",
        "The path is relative to the folder of the configuration, and inside it. The environment variable"
        " `DEVICEFIX_CACHE_DIR` takes its place, and the option that of both. `--no-cache` neither reads nor"
        " writes one.",
        'cache-dir = ".cache/devicefix"',
        _path_inside,
        "DEVICEFIX_CACHE_DIR",
    ),
    Key(
        "jobs",
        "int",
        "one process a core",
        "Processes; by default one a core.",
        "",
        "jobs = 4",
        _count,
    ),
    Key("verbose", "bool", "false", "Tell what is looked at.", "", "verbose = true", _flag),
    Key("quiet", "bool", "false", "Only findings and errors.", "", "quiet = true", _flag),
)

KEYS: dict[str, Key] = {key.name: key for key in _TABLE}
