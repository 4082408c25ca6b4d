"""Find the border of a project: files of different projects don't affect one another."""

from __future__ import annotations

import os
from collections.abc import Iterable

from devicefix.config.load import NAMES

_HOME = os.path.expanduser("~")  # its own files are kept in git by some, and are no project
_MARKS = frozenset({*NAMES, "setup.py", "setup.cfg"})


class Borders:
    """The projects that files belong to; each folder is read once."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, str]] = {}

    def of(self, path: str) -> str:
        """Return the folder of a file's project; empty for a file outside of every project.

        It is the topmost git work tree around the file, so that a submodule belongs to the repository that
        holds it. Without git, it is the topmost folder with a configuration or the metadata of a package.
        """
        repository, package = self._around(os.path.dirname(os.path.abspath(path)))
        found = repository or package
        return "" if os.path.join(_HOME, "").startswith(os.path.join(found, "")) else found

    def grouped(self, paths: Iterable[str]) -> dict[str, list[str]]:
        """Return files by the folders of their projects.

        A project without git below the folder of a file outside of every project is joined with it: it may
        be a part of a program whose folder nothing marks.
        """
        found: dict[str, list[str]] = {}
        for path in paths:
            found.setdefault(self.of(path), []).append(path)
        loose = {os.path.join(os.path.dirname(os.path.abspath(path)), "") for path in found.get("", ())}
        parts = [border for border in found if border and self._is_part(border, loose)]
        for border in parts:
            found[""] += found.pop(border)
        return found

    def _is_part(self, border: str, loose: set[str]) -> bool:
        is_repository = os.path.lexists(os.path.join(border, ".git"))
        return not is_repository and any(border.startswith(folder) for folder in loose)

    def _around(self, folder: str) -> tuple[str, str]:
        """Return the topmost work tree and the topmost package at or above a folder."""
        unknown = []
        while folder not in self._found and os.path.dirname(folder) != folder:
            unknown.append(folder)
            folder = os.path.dirname(folder)
        repository, package = self._found.get(folder, ("", ""))
        for inner in reversed(unknown):
            if not repository and os.path.lexists(os.path.join(inner, ".git")):
                repository = inner
            marks = (os.path.join(inner, mark) for mark in _MARKS)
            if not (repository or package) and any(map(os.path.isfile, marks)):
                package = inner
            self._found[inner] = repository, package
        return repository, package
