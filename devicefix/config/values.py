"""The kinds of values that settings hold, and how each is read from a configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from devicefix.config.sizes import LARGEST, size

TARGETS = ("cuda", "accelerator")
FORMATS = (
    "full", "concise", "grouped", "json", "json-lines", "sarif", "github", "gitlab", "junit", "html",
)  # fmt: skip

ALL = ""  # the beginning of each code; it is written `ALL`
# What a library for any device must not use. The name is kept among the codes: it needs the target.
NEUTRAL = "ACC"
_GROUPS = {"ALL": (ALL,), NEUTRAL: (NEUTRAL, "DF1", "DF2", "DF3", "DF4", "DF5", "DF6")}

KnownCodes = Callable[[], Mapping[str, str]]


class PerFileIgnores(NamedTuple):
    """Rules that are off in some files: `pattern` is a glob, relative to the folder `root`."""

    pattern: str
    codes: tuple[str, ...]
    root: Path


class Exclusion(NamedTuple):
    """A pattern as in .gitignore, relative to the folder `root`."""

    pattern: str
    root: Path


class Origin(NamedTuple):
    """The source of values, as far as reading them depends on it.

    Attributes:
        folder: the folder that paths and patterns are relative to.
        known_codes: returns the names of all rules by their codes. It is only called for values that name
            rules, since loading the rules takes time.
        trusted: whether they may raise limits and name paths elsewhere; those of a checked tree may not.
    """

    folder: Path
    known_codes: KnownCodes
    trusted: bool = False


class Kind(NamedTuple):
    """A kind of value.

    Attributes:
        type: the Python type of the value in a configuration file.
        read: makes the value for `Settings` from that in a file; raises ValueError for a wrong one.
    """

    type: str
    read: Callable[[Any, Origin], Any]


def nearest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a suggestion for the end of an error message.

    Args:
        word: the unknown word.
        known: the words that it might be meant for.
        otherwise: what to suggest if none of them is near.
    """
    from difflib import get_close_matches

    cutoff = 0.6 if word[-1:].isdigit() else 0.7  # codes are short
    close = get_close_matches(word, known, n=1, cutoff=cutoff)
    return f"; did you mean {close[0]!r}?" if close else otherwise


def read_codes(words: Iterable[str], origin: Origin) -> tuple[str, ...]:
    """Read codes, beginnings of codes and names of rules, such as `DF101,DF2`, or a group: `ALL` or `ACC`.

    Raises:
        ValueError: no rule has the name, or a code that starts with the word.
    """
    given = dict.fromkeys(each for word in words for each in word.replace(",", " ").split())
    codes: dict[str, None] = {}
    for word in given:
        group = _GROUPS.get(word.upper())
        codes |= dict.fromkeys([_code(word, origin.known_codes())] if group is None else group)
    return tuple(codes)


def _code(word: str, known: Mapping[str, str]) -> str:
    """Return the code, or the beginning of codes, that a word means."""
    for code, name in known.items():
        if word.lower() == name.lower():
            return code
    if not any(code.startswith(word.upper()) for code in known):
        spelled = word.upper() if word[-1:].isdigit() else word.lower()
        hint = nearest(spelled, [*known, *known.values()], "; `devicefix rule` lists all rules")
        raise ValueError(f"no rule has the code or name {word!r}{hint}")
    return word.upper()


def read_pairs(words: Iterable[str], origin: Origin) -> tuple[PerFileIgnores, ...]:
    """Read pairs of a pattern and a code, such as `tests/*:DF101,setup.py:DF2`.

    Raises:
        ValueError: a word is not such a pair, or no rule has the code.
    """
    table: dict[str, list[str]] = {}
    for pair in (pair for word in words for pair in word.split(",") if pair.strip()):
        pattern, colon, code = (part.strip() for part in pair.rpartition(":"))
        if not (pattern and colon and code):
            raise ValueError(f'{pair.strip()!r} is not a pattern and a code, such as "tests/*:DF101"')
        table.setdefault(pattern, []).append(code)
    return _read_ignores(table, origin)


def _read_version(word: object, _origin: Origin) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)\.(\d+)(\.\d+)?", word) if isinstance(word, str) else None
    if match is None:
        raise ValueError('must be a version such as "2.6"')
    return int(match[1]), int(match[2])


def _read_strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("must be a list of strings")
    return tuple(value)


def _read_code_list(value: Any, origin: Origin) -> tuple[str, ...]:
    return read_codes(_read_strings(value), origin)


def _read_patterns(value: Any, origin: Origin) -> tuple[Exclusion, ...]:
    from devicefix.config.ignore import check

    check(patterns := _read_strings(value))
    return tuple(Exclusion(pattern, origin.folder) for pattern in patterns)


def _read_per_file(value: Any, origin: Origin) -> tuple[PerFileIgnores, ...]:
    if not isinstance(value, dict):
        raise ValueError('must be a table of patterns and codes, such as {"tests/*" = ["DF101"]}')
    return _read_ignores(value, origin)


def _read_ignores(table: dict[str, Any], origin: Origin) -> tuple[PerFileIgnores, ...]:
    from devicefix.config.globs import check

    check(table)
    ignores = []
    for pattern, words in table.items():
        try:
            ignores.append(PerFileIgnores(pattern, _read_code_list(words, origin), origin.folder))
        except ValueError as problem:
            raise ValueError(f"{pattern!r}: {problem}") from None
    return tuple(ignores)


def _read_flag(value: Any, _origin: Origin) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _read_count(value: Any, _origin: Origin) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("must be a positive integer")
    return value


def _read_path(value: Any, origin: Origin) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("must be a path")
    path = origin.folder / value
    if not origin.trusted:
        folder, real = map(os.path.realpath, (origin.folder, path))
        if not Path(real).is_relative_to(folder):
            advice = "use the option to set a path elsewhere"
            raise ValueError(f"must be inside the configuration's folder; {advice}")
        if os.path.islink(path):  # false, too, where no file can have the name
            raise ValueError("must not be a symbolic link; use the option to set one")
    return path


def _read_extended(value: Any, origin: Origin) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("must be a path")
    if not value.endswith(".toml"):
        raise ValueError("must be a TOML file")
    return Path(os.path.normpath(origin.folder / value))


def _read_size(value: Any, origin: Origin) -> str:
    """Read a size such as "16M"; as it limits memory, the configuration of a clone may not raise it."""
    if not isinstance(value, str):
        raise ValueError(f'must be a size such as "{LARGEST}"')
    if size(value) > size(LARGEST) and not origin.trusted:
        raise ValueError(f'must be at most "{LARGEST}"; to allow more, use --max-file-size')
    return value


def _choice(words: tuple[str, ...]) -> Kind:
    """Return the kind whose value is one of a few words."""

    def read(value: Any, _origin: Origin) -> str:
        if not isinstance(value, str) or value not in words:
            close = nearest(value, words) if isinstance(value, str) else ""
            raise ValueError(f"must be one of {', '.join(map(repr, words))}{close}")
        return value

    return Kind(" | ".join(f'"{word}"' for word in words), read)


KINDS = {
    "codes": Kind("list[str]", _read_code_list),
    "count": Kind("int", _read_count),
    "extended": Kind("path", _read_extended),
    "file": Kind("path", _read_path),
    "flag": Kind("bool", _read_flag),  # on the command line without a `--no-` form
    "folder": Kind("path", _read_path),
    "format": _choice(FORMATS),
    "patterns": Kind("list[str]", _read_patterns),
    "per-file": Kind("dict[str, list[str]]", _read_per_file),
    "size": Kind("str", _read_size),
    "switch": Kind("bool", _read_flag),
    "target": _choice(TARGETS),
    "version": Kind("str", _read_version),
}
