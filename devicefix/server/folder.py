"""The files of one project, from disk or from the editor's buffers, and its settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from devicefix.config.resolver import Everywhere, Resolver
from devicefix.config.settings import Settings
from devicefix.config.sizes import LARGEST, read, size
from devicefix.facts.project import Project, ProjectFile
from devicefix.files.border import Borders
from devicefix.files.kinds import Kind, is_python, kind_of
from devicefix.runner.configurations import configurations
from devicefix.runner.find import Choice, find_files
from devicefix.runner.imports import imported
from devicefix.runner.record import Stamp, stamp
from devicefix.runner.run import shared_of


class _File(NamedTuple):
    stamp: Stamp | None
    shared: ProjectFile | None


class Folder:
    """The files of a project in a folder that `devicefix check` checks, or else the editor's buffers of them.

    Args:
        start: the folder that the editor's settings are relative to.
        top: the folder; None for a file outside of every folder, which is checked with what it imports.
    """

    def __init__(self, start: str, top: str | None) -> None:
        self.start = start
        self.top = top
        self._resolver: Resolver = Everywhere(Settings())
        self._files: dict[str, _File] = {}  # by real path, like `_buffers`
        self._buffers: dict[str, list[ProjectFile]] = {}
        self._holders: dict[str, str] = {}  # the text of each buffer, as two may be of one file
        self._project: Project | None = None
        self._outside: list[ProjectFile] = []
        self._imports: dict[str, frozenset[str]] = {}

    def settings(self, path: str | None) -> Settings:
        """Return the settings of a file; of a text that was never saved, those of the folder."""
        return self._resolver.root if path is None else self._resolver.of(path)

    def refresh(self, resolver: Resolver) -> None:
        """Update the settings, and the facts of files that have changed."""
        self._resolver = resolver
        known, found = self._files, {}
        for file in self._listed():
            real = os.path.realpath(file)
            now = stamp(file)
            entry = known.get(real)
            found[real] = entry if entry and entry.stamp == now else _File(now, _shared(file))
        self._files = found
        self._imports = {}
        self._project = None

    def _listed(self) -> list[str]:
        """Return the files below the folder that are no part of a project in it."""
        if self.top is None:
            return []
        files = map(os.fspath, find_files([Path(self.top)], self._resolver, lambda _problem: None))
        borders = Borders()
        border = borders.of(os.path.join(self.top, "file"))
        return [file for file in files if borders.of(file) == border]

    def leaves_out(self, path: str) -> bool:
        """Return whether `devicefix check` of the folder excludes a file, which may not exist yet."""
        if self.top is None or os.path.realpath(path) in self._files:
            return False
        choice = Choice(self._resolver)
        if is_python(path) or kind_of(path) is not Kind.MODULE:
            if os.path.isfile(path) or not choice.includes(path):
                return True
        return choice.excludes(path)

    def project(self, uri: str, path: str, shared: list[ProjectFile]) -> Project:
        """Return the project.

        Args:
            uri: a text in the editor. Of several texts of one file, the first one is its buffer.
            path: its file.
            shared: what others see of it. If that is nothing, as while somebody types, the last text counts.
        """
        real = os.path.realpath(path)
        is_buffer = self._holders.setdefault(real, uri) == uri
        before = self._buffers.get(real)
        if is_buffer and (before is None or (shared and not _take_over(before, shared))):
            self._buffers[real] = shared
            self._project = None
        if self._project is None:
            all_files = self._all()
            self._project = Project(all_files + self._imported(all_files), configurations)
        return self._project

    def close(self, uri: str, path: str) -> None:
        """Use a file's content on disk from now on, or another text of it."""
        real = os.path.realpath(path)
        if self._holders.get(real) == uri:
            del self._holders[real]
            self._buffers.pop(real, None)
            self._project = None

    def _all(self) -> list[ProjectFile]:
        found = {real: [file.shared] for real, file in self._files.items() if file.shared} | self._buffers
        return [each for shared in found.values() for each in shared]

    def _imported(self, files: list[ProjectFile]) -> list[ProjectFile]:
        """Return what the files import from outside of the folder."""
        imports = {file.path: file.imports for file in files}
        if imports != self._imports:
            self._outside = imported(files)
            self._imports = imports
        return self._outside


def _take_over(before: list[ProjectFile], after: list[ProjectFile]) -> bool:
    """Use another text of a file if it answers all that was asked of it alike, and return whether it does."""
    if [each.data for each in before] == [each.data for each in after]:
        return True
    return len(before) == len(after) == 1 and before[0].changed_to(after[0])


def _shared(file: str) -> ProjectFile | None:
    try:
        return shared_of(file, (read(file, size(LARGEST)), ("", None)))
    except OSError:  # reported when the file is opened
        return None
