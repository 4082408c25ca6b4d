"""Match paths against globs as in ruff's per-file-ignores: https://docs.rs/globset, where `*` matches `/`."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

Ignores = tuple[tuple[str, tuple[str, ...], Path], ...]  # patterns, codes, and folders

LONGEST = 1_000  # characters of a pattern
MOST = 1_000  # patterns of a setting, with the alternatives of braces

_SHOWN = 60  # characters of a pattern in a message
_PART = re.compile(r"(?:^|(?<=/))\*\*/|\[[!^]?.[^\]]*\]|\\.|.", re.S)
_BRACES = "the braces in a pattern must be balanced"
_TOO_LONG = f"a pattern may have at most {LONGEST:,} characters"
_TOO_MANY = f"at most {MOST:,} patterns are allowed, including the alternatives in braces"


def check(patterns: Iterable[str], read: Callable[[str], Sequence[object]] | None = None) -> None:
    """Check that patterns can be used together.

    Args:
        patterns: the patterns.
        read: returns the alternatives of one; by default those of a glob.

    Raises:
        ValueError: they can't be; the message names the pattern.
    """
    left = MOST
    for pattern in patterns:
        try:
            if len(pattern) > LONGEST:
                raise ValueError(_TOO_LONG)
            left -= len((read or _alternatives)(pattern))
            if left < 0:
                raise ValueError(_TOO_MANY)
        except ValueError as problem:
            raise ValueError(f"{pattern[:_SHOWN]!r}: {problem}") from None


def off(path: str, ignores: Ignores) -> tuple[str, ...]:
    """Return the codes of the rules that are off in a file.

    Args:
        path: the file, absolute or relative to the current folder.
        ignores: patterns with codes, each for the file's name, or for its path relative to a folder. With `!`
            in front a pattern matches every file that the rest does not match.
    """
    path = os.path.abspath(path).replace(os.sep, "/")
    matching = (codes for glob, codes in _compiled(ignores) if glob.matches(path) is not glob.negated)
    found = {code: None for codes in matching for code in codes}
    return tuple(found)


class _Glob(NamedTuple):
    """A pattern.

    Attributes:
        negated: whether it matches every file that the rest does not match.
        folder: what the paths start with that it matches.
        path: matches the rest of such a path.
        name: matches the name of a file.
    """

    negated: bool
    folder: str
    path: re.Pattern[str]
    name: re.Pattern[str]

    def matches(self, path: str) -> bool:
        """Return whether an absolute path or its name matches, whatever is in front of the pattern."""
        below = path.startswith(self.folder) and self.path.match(path, len(self.folder))
        return bool(below or self.name.match(path, path.rindex("/") + 1))


@lru_cache(maxsize=8)
def _compiled(ignores: Ignores) -> list[tuple[_Glob, tuple[str, ...]]]:
    return [(_glob(pattern, root), codes) for pattern, codes, root in ignores]


def _glob(pattern: str, root: Path) -> _Glob:
    rest = whole = pattern.removeprefix("!").replace(os.sep, "/")
    folder = ""
    if not os.path.isabs(whole):
        above = os.path.abspath(root)
        rest = whole.removeprefix("./")
        while rest.startswith("../"):
            above, rest = os.path.dirname(above), rest[3:]
        folder = above.replace(os.sep, "/").rstrip("/") + "/"
    return _Glob(pattern.startswith("!"), folder, _regex(rest), _regex(whole))


def _regex(glob: str) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, _alternatives(glob))))


def _alternatives(glob: str) -> list[str]:
    """Return the patterns of fnmatch that a glob with braces and `**/` stands for.

    Raises:
        ValueError: the glob is not valid, or has too many alternatives.
    """
    glob = glob.removeprefix("!").replace(os.sep, "/")
    if not glob:
        raise ValueError("a pattern must not be empty")
    # For the glob itself and each open brace: the alternatives that are complete, and those being read.
    groups: list[tuple[list[str], list[str]]] = [([], [""])]
    for part in _PART.findall(glob):
        done, reading = groups[-1]
        if part == "{":
            groups.append(([], [""]))
        elif part == "," and len(groups) > 1:
            groups[-1] = ([*done, *reading], [""])
        elif part == "}" and len(groups) > 1:
            groups.pop()
            around, before = groups[-1]
            groups[-1] = (around, _joined(before, [*done, *reading]))
        elif part == "}":
            raise ValueError(_BRACES)
        else:
            groups[-1] = (done, _joined(reading, ["", "*/"] if part == "**/" else [_of_fnmatch(part)]))
    if len(groups) > 1:
        raise ValueError(_BRACES)
    return groups[0][1]


def _joined(starts: list[str], ends: list[str]) -> list[str]:
    if len(starts) * len(ends) > MOST:
        raise ValueError(_TOO_MANY)
    return [start + end for start in starts for end in ends]


def _of_fnmatch(part: str) -> str:
    """Return what means the same as a part of a glob: brackets, a character or an escaped one."""
    if part[0] == "[" and len(part) > 1:
        return part.replace("[^", "[!", 1) if part[1] == "^" else part
    return f"[{part[-1]}]" if part in ("[", "\\[", "\\*", "\\?") else part[-1]
