"""The state of the server: the folders, their settings, and the findings in the open files.

Nothing here knows the protocol. It is called by one thread at a time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

from devicefix.config import load
from devicefix.config.printable import printable
from devicefix.config.resolver import Nearest, Resolver
from devicefix.config.settings import ConfigError, Settings
from devicefix.config.values import Origin
from devicefix.files.border import Borders
from devicefix.rules import known_codes
from devicefix.runner.errors import internal_error
from devicefix.server.folder import Folder
from devicefix.server.inspect import Inspection, inspect

logger = logging.getLogger(__name__)


class Workspace:
    """The folders that an editor has open.

    Attributes:
        tops: the folders, absolute.
        options: the editor's settings, by the keys of the configuration.
        stale: whether files or settings may have changed.
        troubles: problems with the settings that have not been shown yet.
    """

    def __init__(self) -> None:
        self.tops: list[str] = []
        self.options: Mapping[str, Any] = {}
        self.stale = False
        self.troubles: list[str] = []
        self._told: set[str] = set()
        self._folders: dict[str, Folder] = {}
        self._borders = Borders()
        self._valid: dict[Path | None, Settings] = {}
        self._looks: dict[str, Inspection] = {}
        self._past: list[Inspection] = []

    def look(self, uri: str, path: str | None, text: str) -> Inspection | None:
        """Check a text in the editor, unless nothing that matters has changed since the last time.

        Args:
            uri: the editor's name for the text.
            path: the path where it is or will be saved; None if that is not known.
            text: the whole text.

        Returns:
            The findings; None for an excluded file.
        """
        self._refresh()
        folder = self._folder(path)
        settings = folder.settings(path)
        where = _place(uri, path)
        if path and folder.leaves_out(path):
            self._looks.pop(uri, None)
            return None
        known = self._looks.get(uri)
        if known and known.text == text and known.settings == settings:
            project = folder.project(uri, where, known.shared)
            if known.project is project or project.agrees(known.answers):
                known.project = project
                return known
        try:
            found = inspect(where, text, settings, partial(folder.project, uri, where))
        except ConfigError as problem:
            self._tell(str(problem))
            return None
        except Exception as problem:
            logger.error("%s: %s", where, internal_error(problem))
            return None
        if known:
            self._past.append(known)
        self._looks[uri] = found
        return found

    def tidy(self) -> None:
        """Free outdated syntax trees, which takes time that no request should wait for."""
        self._past.clear()

    def close(self, uri: str, path: str | None) -> None:
        """Forget a text that the editor has closed."""
        self._looks.pop(uri, None)
        self._folder(path).close(uri, _place(uri, path))

    def _refresh(self) -> None:
        """Read the configurations and the files again if they may have changed."""
        if self.stale:
            self.stale = False
            self._borders = Borders()
            self._told.clear()
            for folder in self._folders.values():
                folder.refresh(self._resolver(folder.start))

    def _folder(self, path: str | None) -> Folder:
        """Return the files of a file's project in the editor's folder."""
        tops = (each for each in self.tops if path and _is_in(path, each))
        top = max(tops, key=len, default=None)  # the editor's folder that the file is in
        border = self._borders.of(path) if path else ""
        if top and border and _is_in(border, top):
            top = border
        key = top or path or ""
        if key not in self._folders:
            start = top or (os.path.dirname(path) if path else next(iter(self.tops), os.getcwd()))
            self._folders[key] = Folder(start, top)
            self._folders[key].refresh(self._resolver(start))
        return self._folders[key]

    def _resolver(self, start: str) -> Resolver:
        return Nearest(partial(self._settings, start), start)

    def _settings(self, start: str, file: Path | None) -> Settings:
        """Return the settings that a configuration makes; after an error in it, the last valid ones.

        Invalid settings of the editor are ignored.

        Args:
            start: the folder that the editor's settings are relative to.
            file: the configuration, if there is one.
        """
        try:
            settings = load.load(file, known_codes)
        except ConfigError as problem:
            self._tell(f"{problem} (the last valid settings stay active)")
            return self._valid.get(file, Settings())
        try:
            origin = Origin(Path(start), known_codes, trusted=True)
            settings = load.with_values(settings, self.options, origin)
        except ConfigError as problem:
            self._tell(f"{problem} (the editor's settings are ignored)")
        self._valid[file] = settings
        return settings

    def _tell(self, trouble: str) -> None:
        if trouble not in self._told:
            self._told.add(trouble)
            self.troubles.append(printable(trouble))


def _place(uri: str, path: str | None) -> str:
    """Return the path of a text; each that was never saved is another file."""
    suffix = "ipynb" if ".ipynb" in uri else "py"
    return path or f"untitled-{crc32(uri.encode(errors='replace')):08x}.{suffix}"


def _is_in(path: str, folder: str) -> bool:
    return os.path.normcase(path).startswith(os.path.normcase(os.path.join(folder, "")))
