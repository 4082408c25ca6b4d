"""Match paths against patterns as in .gitignore: https://git-scm.com/docs/gitignore."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from devicefix.config.patterns import (
    ANY,
    NO_SLASH,
    PART,
    Automaton,
    Item,
    Pattern,
    check_all,
    item,
    joined,
    literal,
)

_PART = re.compile(rf"(?<=/)\*\*/|/\*\*\Z|\*+|{PART}", re.S)
_ANYTHING = Item(ANY, repeated=True)
_FOLDERS = [_ANYTHING, *literal("/")]
_BELOW = [*literal("/"), Item(ANY), _ANYTHING]


class _Line(NamedTuple):
    """A pattern.

    Attributes:
        alternatives: the paths that it matches; each starts with a slash.
        negated: whether it includes again what patterns before it exclude.
        for_folders: whether it matches only folders.
    """

    alternatives: list[Pattern]
    negated: bool = False
    for_folders: bool = False


def check(patterns: Iterable[str]) -> None:
    """Check that patterns can be used together.

    Raises:
        ValueError: they can't be; the message names the pattern.
    """
    check_all(patterns, lambda pattern: _line(pattern).alternatives)


class Ignore:
    """Patterns that exclude files.

    As in git, the last pattern that matches decides, and nothing below an excluded folder is included again.

    Args:
        patterns: the patterns, which must be valid.
    """

    def __init__(self, patterns: tuple[str, ...]) -> None:
        lines = list(map(_line, patterns))
        self._automaton = Automaton(line.alternatives for line in lines)
        each = list(zip(lines, self._automaton.ends, strict=True))
        self._all = sum(ends for _, ends in each)
        self._negated = sum(ends for line, ends in each if line.negated)
        self._of_files = sum(ends for line, ends in each if not line.for_folders)
        self._folders: dict[str, tuple[int, bool]] = {}

    def excludes(self, path: str, is_folder: bool) -> bool:
        """Return whether a path is excluded.

        Args:
            path: the path, relative to the folder of the patterns, with `/` between its parts.
            is_folder: whether it is a folder's.
        """
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._below(folder)
        state, excluded = self._folders[folder]
        return excluded or self._matches(self._automaton.after(f"/{name}", state), is_folder)

    def _below(self, folder: str) -> tuple[int, bool]:
        """Return the state after the path of a folder, and whether it is excluded."""
        state = self._automaton.starts
        for name in folder.split("/") if folder else ():
            state = self._automaton.after(f"/{name}", state)
            if self._matches(state, True):
                return state, True
        return state, False

    def _matches(self, state: int, is_folder: bool) -> bool:
        found = state & (self._all if is_folder else self._of_files)
        return (
            found.bit_length() > (found & self._negated).bit_length()
        )  # the highest bit is the last pattern


compiled = lru_cache(maxsize=16)(Ignore)


def _line(pattern: str) -> _Line:
    """Return what a pattern means.

    Raises:
        ValueError: it is not valid.
    """
    glob = _without_spaces(pattern)
    if not glob or glob.startswith("#"):
        return _Line([])
    negated = glob.startswith("!")
    glob = glob.removeprefix("!")
    if not glob:
        raise ValueError("a pattern must not be empty")
    glob = glob[1:] if glob.startswith("./") else glob  # which git does not accept, but ruff does
    for_folders = glob.endswith("/")
    glob = glob.removesuffix("/")
    if not glob:
        return _Line([])
    alternatives: list[Pattern] = [[]] if "/" in glob else [_FOLDERS]
    for part in _PART.finditer(f"/{glob.removeprefix('/')}" if "/" in glob else glob):
        special = {"**/": [[], _FOLDERS], "/**": [_BELOW]}
        alternatives = joined(alternatives, special.get(part[0]) or [[item(part[0], NO_SLASH)]])
    return _Line(alternatives, negated, for_folders)


def _without_spaces(pattern: str) -> str:
    """Return a pattern without the spaces at its end, unless a backslash escapes the first one."""
    found = pattern.rstrip(" ")
    backslashes = len(found) - len(found.rstrip("\\"))
    return found + " " if len(found) < len(pattern) and backslashes % 2 else found
