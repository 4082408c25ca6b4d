"""Parse TOML, and find the position of a key, which the standard library's parser does not give."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST = 256 * 2**10  # bytes, which the parser reads in up to half a second
_PARTS = 100  # of a dotted key; the parser's time grows with their square

Position = tuple[int, int]

_AT = re.compile(r" \(at line (\d+), column (\d+)\)$")
_RENAMED = "devicefix-renamed"  # no key has this name
_AT_END = " (at end of document)"
_DEEP_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{_PARTS}}}""")


class TomlError(ValueError):
    """A text is not TOML.

    Attributes:
        position: line and column of what is wrong, from 1.
    """

    def __init__(self, message: str, position: Position) -> None:
        super().__init__(message)
        self.position = position


def parse(data: bytes) -> tuple[str, dict[str, Any]]:
    """Return the text of a TOML file, and its content.

    Raises:
        TomlError: the bytes are not UTF-8, or the text is not TOML.
    """
    if len(data) > MOST:
        raise TomlError(f"the text is larger than {MOST // 2**10}K", (1, 1))
    try:
        text = data.decode()
    except UnicodeDecodeError as problem:
        before = data[: problem.start]
        position = before.count(b"\n") + 1, problem.start - before.rfind(b"\n")
        raise TomlError(f"byte 0x{data[problem.start]:02x} is not valid UTF-8", position) from None
    if deep := _DEEP_KEY.search(text):
        line = text.count("\n", 0, deep.start()) + 1
        raise TomlError(f"a key has more than {_PARTS} parts", (line, 1))
    try:
        return text, tomllib.loads(text)
    except RecursionError:
        raise TomlError("the text is nested too deeply", (1, 1)) from None
    except tomllib.TOMLDecodeError as problem:
        message = str(problem)
        at = _AT.search(message)
        lines = text.split("\n")
        position = (int(at[1]), int(at[2])) if at else (len(lines), len(lines[-1]) + 1)
        raise TomlError(_AT.sub("", message).removesuffix(_AT_END), position) from None
    except ValueError as problem:  # a number with too many digits
        raise TomlError(str(problem), (1, 1)) from None


def beside(module: str) -> dict[str, Any]:
    """Return the content of the TOML file that has the name of a module, given as its `__file__`."""
    return parse(Path(module).with_suffix(".toml").read_bytes())[1]


def position(text: str, keys: Sequence[str]) -> Position | None:
    """Return the line and the column of a key, both from 1.

    The parser decides: the key is the first part of the text that gives it another name when it is replaced.
    So any form is found: below a header, dotted, quoted, or in an inline table.

    Args:
        text: the whole file, which is valid TOML.
        keys: the names of the tables that hold the key, and its own.

    Returns:
        None if there is no such key, it is written with escapes, or the search takes too long.
    """
    *tables, key = keys
    left = MOST  # of what is parsed for it
    for match in re.finditer(rf"""(?<![\w-])(["']?){re.escape(key)}\1(?![\w-])""", text):
        left -= len(text)
        if left < 0:
            return None
        renamed = f"{text[: match.start()]}{_RENAMED}{text[match.end() :]}"
        if _has(renamed, (*tables, _RENAMED)):
            return text.count("\n", 0, match.start()) + 1, match.start() - text.rfind("\n", 0, match.start())
    return None


def _has(text: str, keys: Sequence[str]) -> bool:
    try:
        value: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True
