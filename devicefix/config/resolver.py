"""Find the settings of each file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from devicefix.config import load
from devicefix.config.folders import nearest_above
from devicefix.config.line_length import line_length_in
from devicefix.config.settings import Settings


class Resolver(ABC):
    """The settings of a run and of each file.

    Attributes:
        root: the settings of the run, for what does not depend on a file: the output, the cache, processes.
    """

    root: Settings

    @abstractmethod
    def of(self, path: str) -> Settings:
        """Return the settings of a file, or of a folder as an entry of the one that holds it.

        Raises:
            ConfigError: its configuration is invalid.
        """

    def changed(self, **values: Any) -> Resolver:
        """Return a resolver whose settings have other values."""
        other = copy(self)
        other.root = replace(self.root, **values)
        return other


class Everywhere(Resolver):
    """The same settings for all files.

    Args:
        settings: the settings.
    """

    def __init__(self, settings: Settings) -> None:
        self.root = settings

    def of(self, path: str) -> Settings:  # noqa: ARG002 (all files have the same)
        """Return the settings."""
        return self.root


class Nearest(Resolver):
    """The settings of the configuration that is nearest to a file, at or above its folder.

    Args:
        make: returns the settings that a configuration makes; for None those without one.
        start: the folder of the run.
        find_in: returns the configuration in a folder.

    Attributes:
        file: the configuration of the run, if there is one.

    Raises:
        ConfigError: the configuration of the run is invalid.
    """

    def __init__(
        self,
        make: Callable[[Path | None], Settings],
        start: str | os.PathLike[str],
        find_in: Callable[[Path], Path | None] = load.find_in,
    ) -> None:
        self._make = make
        self._find_in = find_in
        self._files: dict[str, Path | None] = {}
        self._line_lengths: dict[str, int | None] = {}
        self._made: dict[Path | None, Settings] = {}
        self._settings: dict[str, Settings] = {}
        start = os.path.abspath(start)
        self.root = self._within(start)
        self.file = self.configuration(start)

    def of(self, path: str) -> Settings:
        """Return the settings of the nearest configuration."""
        return self._within(os.path.dirname(os.path.abspath(path.rstrip(os.sep) or path)))

    def configuration(self, folder: str) -> Path | None:
        """Return the nearest configuration of the files in a folder."""
        return nearest_above(folder, self._files, lambda place: self._find_in(Path(place)))

    def changed(self, **values: Any) -> Resolver:
        """Return a resolver whose settings have other values."""
        other = copy(self)
        other._make = lambda file: replace(self._make(file), **values)
        other._made, other._settings = {}, {}
        other.root = replace(self.root, **values)
        return other

    def _within(self, folder: str) -> Settings:
        """Return the settings of the files in a folder."""
        if folder not in self._settings:
            file = self.configuration(folder)
            if file not in self._made:
                self._made[file] = self._make(file)
            length = nearest_above(folder, self._line_lengths, line_length_in)
            made = self._made[file]
            self._settings[folder] = made if length is None else replace(made, line_length=length)
        return self._settings[folder]
