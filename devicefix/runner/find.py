"""Choose the files to check: those that paths name, and the other modules of their projects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from devicefix.config.resolver import Resolver
from devicefix.files import discover
from devicefix.files.border import Borders
from devicefix.files.kinds import Kind, is_python, kind_of, language_of


def find_files(paths: Iterable[Path], resolver: Resolver, onerror: Callable[[OSError], None]) -> list[Path]:
    """Return the files that paths name, and in folders those that the settings include.

    Args:
        paths: files and folders.
        resolver: the settings: what to exclude, and whether to include configuration files and documentation.
        onerror: called for each folder that cannot be read, and if git takes too long to list files.

    Raises:
        ConfigError: the configuration of a folder is invalid.
    """
    return discover.find(paths, Choice(resolver), onerror)


class Choice(discover.Filter):
    """The files that the settings include.

    Args:
        resolver: the settings of each file.
    """

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def includes(self, path: str) -> bool:
        """Return whether the settings include a file of a folder, by its name."""
        kind = kind_of(path)
        if kind is Kind.CONFIG:
            return self._resolver.of(path).config_files
        if kind is Kind.ENVIRONMENT:
            settings = self._resolver.of(path)
            return settings.environment or (settings.config_files and language_of(path) is not None)
        if kind is Kind.DOCS:
            return self._resolver.of(path).docs
        return is_python(path) or kind is Kind.NOTEBOOK

    def excludes(self, path: str) -> bool:
        """Return whether the settings exclude a file, or a folder."""
        return discover.is_excluded(path, self._resolver.of(path))

    def excludes_named(self, path: str) -> bool:
        """Return whether the settings exclude a file or folder even if it is named."""
        return self._resolver.of(path).force_exclude and discover.is_below_excluded(path, self)

    def asks_git(self, folder: str) -> bool:
        """Return whether the settings leave out what git ignores in a folder."""
        return self._resolver.of(os.path.join(folder, "file")).respect_gitignore


class Modules(Choice):
    """The modules that the settings include."""

    def includes(self, path: str) -> bool:
        """Return whether to include a file of a folder."""
        return is_python(path)


def others(paths: Iterable[str], resolver: Resolver, named: Iterable[Path] = ()) -> Iterator[Path]:
    """Yield the other modules of the projects that files belong to, named as the files are.

    Args:
        paths: the files.
        resolver: the settings of each file.
        named: folders whose files are known.
    """
    covered = [os.path.join(os.path.realpath(path), "") for path in named if path.is_dir()]
    for border, group in Borders().grouped(paths).items():
        if not border or any(os.path.join(os.path.realpath(border), "").startswith(top) for top in covered):
            continue
        known = set(map(os.path.realpath, group))
        start = border if any(map(os.path.isabs, group)) else os.path.relpath(border)
        for file in discover.find([Path(start)], Modules(resolver), lambda _problem: None):
            if os.path.realpath(file) not in known:
                yield file
