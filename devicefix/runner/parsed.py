"""Files that a process has parsed to summarize them, kept for their check."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devicefix.config.settings import Settings
    from devicefix.engine.file import File


class Parsed:
    """Files with their syntax trees.

    Attributes:
        room: how many bytes of source to keep at most; the syntax trees take some forty times as much.
    """

    def __init__(self) -> None:
        self.room = 0
        self._files: dict[str, tuple[Settings, File]] = {}

    def keep(self, file: File, settings: Settings) -> None:
        """Keep a file if there is room."""
        if file.size <= self.room and file.path not in self._files:
            self.room -= file.size
            self._files[file.path] = settings, file
            gc.freeze()  # no collection walks over the trees that are kept

    def take(self, data: bytes, path: str, settings: Settings) -> File:
        """Return the file that was kept, if it has this content, or a new one."""
        from devicefix.engine.file import File

        known, file = self._files.pop(path, (None, None))
        if file is not None:
            self.room += file.size
            if known == settings and file.data == data:
                return file
        return File(data, path, settings)

    def clear(self) -> None:
        """Forget all files, and keep no more."""
        self.room = 0
        self._files.clear()
        gc.unfreeze()


PARSED = Parsed()
