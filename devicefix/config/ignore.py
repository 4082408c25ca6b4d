"""Match paths against patterns as in .gitignore: https://git-scm.com/docs/gitignore."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable
from functools import lru_cache

from pathspec import GitIgnoreSpec

from devicefix.config import globs
from devicefix.config.folders import Below


def check(patterns: Iterable[str]) -> None:
    """Check that patterns can be used together.

    Raises:
        ValueError: they can't be; the message names the pattern.
    """
    globs.check(patterns, lambda pattern: [spec(pattern)])


def spec(*patterns: str) -> GitIgnoreSpec:
    """Return what matches the paths that patterns exclude.

    Raises:
        ValueError: a pattern is not valid.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of brackets such as `[[]`
            return GitIgnoreSpec.from_lines(map(_line, patterns))
    except (ValueError, re.error):
        raise ValueError("this is not a valid .gitignore pattern") from None


class Ignore:
    """Patterns that exclude files.

    As in git, the last pattern that matches decides, and nothing below an excluded folder is included again.

    Args:
        patterns: the patterns, which must be valid.
    """

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._files = spec(*patterns)
        # Asked about `a/b/`, pathspec cannot tell what matches this folder from what matches `a`.
        self._folders = spec(*(_line(pattern).removesuffix("/") for pattern in patterns))
        self._below = Below(self._folders.match_file)

    def excludes(self, path: str, is_folder: bool) -> bool:
        """Return whether a path is excluded.

        Args:
            path: the path, relative to the folder of the patterns, with `/` between its parts.
            is_folder: whether it is a folder's.
        """
        files = self._folders if is_folder else self._files
        return self._below[os.path.dirname(path)] or files.match_file(path)


compiled = lru_cache(maxsize=16)(Ignore)


def _line(pattern: str) -> str:
    """Return a pattern without spaces at its end, and as pathspec reads it like git."""
    line = pattern if pattern.endswith("\\ ") else pattern.rstrip()
    line = re.sub(r"\A(!?)\./", r"\1/", line)  # which git does not accept, but ruff does
    return re.sub(r"(?<=/)\*\*/\Z", "**/*/", line)  # folders in a folder, and not what is in it
