"""Match paths against globs as in ruff's per-file-ignores: https://docs.rs/globset, where `*` matches `/`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from devicefix.config.patterns import ANY, PART, Automaton, Item, Pattern, check_all, item, joined, literal

Ignores = tuple[tuple[str, tuple[str, ...], Path], ...]  # patterns, codes, and folders

_PART = re.compile(rf"(?:^|(?<=/))\*\*/|\*+|{PART}", re.S)
_BRACES = "the braces in a pattern must match"
_ANY_FOLDERS = [Item(ANY, repeated=True), *literal("/")]


def check(patterns: Iterable[str]) -> None:
    """Check that patterns can be used together.

    Raises:
        ValueError: they can't be; the message names the pattern.
    """
    check_all(patterns, _alternatives)


def off(path: str, ignores: Ignores) -> tuple[str, ...]:
    """Return the codes of the rules that are off in a file.

    Args:
        path: the file, absolute or relative to the current folder.
        ignores: patterns with codes, each for the file's name, or for its path relative to a folder. With `!`
            in front a pattern matches every file that the rest does not match.
    """
    return _compiled(ignores).off(os.path.abspath(path).replace(os.sep, "/"))


class _Ignores:
    """Patterns with the codes that they turn off."""

    def __init__(self, ignores: Ignores) -> None:
        self._paths = Automaton(_whole(pattern, root) for pattern, _, root in ignores)
        self._names = Automaton(_alternatives(pattern) for pattern, _, _ in ignores)
        self._each = list(zip(ignores, self._paths.ends, self._names.ends, strict=True))
        self._folders: dict[str, int] = {}

    def off(self, path: str) -> tuple[str, ...]:
        """Return the codes that are off in a file, given its absolute path."""
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._paths.after(f"{folder}/", self._paths.starts)
        whole = self._paths.after(name, self._folders[folder])
        alone = self._names.after(name, self._names.starts)
        found = {
            code: None
            for (pattern, codes, _), of_path, of_name in self._each
            if bool(whole & of_path or alone & of_name) is not pattern.startswith("!")
            for code in codes
        }
        return tuple(found)


_compiled = lru_cache(maxsize=8)(_Ignores)


def _whole(pattern: str, root: Path) -> list[Pattern]:
    """Return the alternatives of a pattern as absolute paths."""
    pattern = pattern.removeprefix("!").replace(os.sep, "/")
    if os.path.isabs(pattern):
        return _alternatives(pattern)
    folder = os.path.abspath(root)
    rest = pattern.removeprefix("./")
    while rest.startswith("../"):
        folder, rest = os.path.dirname(folder), rest[3:]
    base = literal(folder.replace(os.sep, "/").rstrip("/") + "/")
    return [base + alternative for alternative in _alternatives(rest)]


def _alternatives(glob: str) -> list[Pattern]:
    """Return the patterns that a glob with braces and `**/` stands for.

    Raises:
        ValueError: the glob is not valid, or too long with all its alternatives.
    """
    glob = glob.removeprefix("!").replace(os.sep, "/")
    if not glob:
        raise ValueError("a pattern must not be empty")
    # For the glob itself and each open brace: the alternatives that are complete, and those being read.
    groups: list[tuple[list[Pattern], list[Pattern]]] = [([], [[]])]
    for part in (match[0] for match in _PART.finditer(glob)):
        done, reading = groups[-1]
        if part == "{":
            groups.append(([], [[]]))
        elif part == "," and len(groups) > 1:
            groups[-1] = ([*done, *reading], [[]])
        elif part == "}" and len(groups) > 1:
            groups.pop()
            around, before = groups[-1]
            groups[-1] = (around, joined(before, [*done, *reading]))
        elif part == "}":
            raise ValueError(_BRACES)
        else:
            following = [[], _ANY_FOLDERS] if part == "**/" else [[item(part, ANY)]]
            groups[-1] = (done, joined(reading, following))
    if len(groups) > 1:
        raise ValueError(_BRACES)
    return groups[0][1]
