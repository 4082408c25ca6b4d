"""Match paths against globs as in ruff's per-file-ignores: https://docs.rs/globset, where `*` matches `/`."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

_PART = re.compile(r"(?:^|(?<=/))\*\*/|\*+|\?|\[[!^]?\]?[^\]]*\]|[{},]|.", re.S)


def matches(path: str, pattern: str, root: Path) -> bool:
    """Return whether a pattern matches a file.

    Args:
        path: the file, absolute or relative to the current folder.
        pattern: a glob for the file's name, or for its path relative to `root`. With `!` in front it matches
            every file that the rest does not match.
        root: the folder that the pattern is relative to.
    """
    whole, name = compiled(pattern, root)
    path = os.path.abspath(path).replace(os.sep, "/")
    found = whole.fullmatch(path) or name.fullmatch(path.rpartition("/")[2])
    return bool(found) is not pattern.startswith("!")


@cache
def compiled(pattern: str, root: Path) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the regular expressions of which a file's path must match the first, or its name the second.

    Raises:
        ValueError: the pattern is not valid.
    """
    pattern = pattern.removeprefix("!").replace(os.sep, "/")
    folder = os.path.abspath(root)
    rest = pattern.removeprefix("./")
    while rest.startswith("../"):
        folder, rest = os.path.dirname(folder), rest[3:]
    base = "" if os.path.isabs(pattern) else re.escape(folder.replace(os.sep, "/").rstrip("/") + "/")
    return re.compile(base + _regex(rest), re.S), re.compile(_regex(pattern), re.S)


def _regex(glob: str) -> str:
    parts: list[str] = []
    depth = 0
    for part in _PART.findall(glob):
        depth += (part == "{") - (part == "}")
        if depth < 0:
            break
        parts.append(_part(part, depth))
    if depth or not glob:
        raise ValueError("the braces of a pattern must match" if glob else "a pattern must not be empty")
    try:
        re.compile(regex := "".join(parts))
    except re.error:
        raise ValueError("is not a valid pattern") from None
    return regex


def _part(part: str, depth: int) -> str:
    if part == "**/":
        return "(?:.*/)?"
    if part[0] == "[" and len(part) > 1:
        negated = part[1] in "!^"
        inner = part[2 if negated else 1 : -1].replace("\\", r"\\").replace("]", r"\]").replace("[", r"\[")
        return f"[{'^' if negated else ''}{inner}]"
    if part == "," and depth:
        return "|"
    signs = {"*": ".*", "?": ".", "{": "(?:", "}": ")"}
    return signs.get(part[0]) or re.escape(part)
