"""Scratch copies: a run in a copy of the program's folder, reported as if in the folder itself."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Any

from devicefix.verify.program import Program

_COPIED = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
_NOT_COPIED = shutil.ignore_patterns(".git", "__pycache__", ".venv", "venv")


class Scratch:
    """A copy of a program's folder.

    A link in the folder leads to the same file, or to its copy if that is in the folder, too: a program that
    writes through it changes nothing in the folder itself.

    Args:
        original: the program's folder, as a real path.
        parent: the folder to make the copy in.

    Raises:
        OSError: a file cannot be read, or the disk is full.
    """

    def __init__(self, original: Path, parent: Path) -> None:
        self._original = original
        self._copy = parent / (original.name or "copy")
        shutil.copytree(original, self._copy, symlinks=True, ignore=_ignored)
        for folder, folders, names in os.walk(self._copy):
            for link in (Path(folder, name) for name in folders + names):
                if link.is_symlink():
                    self._redirect(link)

    def _redirect(self, link: Path) -> None:
        target = Path(os.path.realpath(self._original / link.relative_to(self._copy)))
        if target.is_relative_to(self._original):
            copied = self._copy / target.relative_to(self._original)
            target = target if target.exists() and not copied.exists() else copied  # not everything is copied
        if os.path.realpath(link) != str(target):
            link.unlink()
            link.symlink_to(target)

    def path(self, path: str) -> str:
        """Return the path of a file's copy; any other string stays as it is."""
        if not os.path.exists(path):
            return path
        real = Path(os.path.realpath(path))
        inside = real.is_relative_to(self._original)
        return str(self._copy / real.relative_to(self._original)) if inside else path

    def command(self, command: list[str], folder: Path) -> list[str]:
        """Return the command with the paths of the copies.

        Args:
            command: the words of the command.
            folder: the folder that it was to run in.
        """
        # Relative paths stay correct if the command moves to the copy too.
        keep_relative = folder.resolve().is_relative_to(self._original)
        return [word if keep_relative and not os.path.isabs(word) else self.path(word) for word in command]

    def program(self, program: Program) -> Program:
        """Return the program with the paths of the copies."""
        return Program(
            tuple(self.path(root) for root in program.roots),
            {self.path(path): source for path, source in program.rewritten.items()},
            {self.path(path): lines for path, lines in program.fixes.items()},
            {self.path(path): lines for path, lines in program.origins.items()},
            program.errors,
        )

    def restored(self, event: Any) -> Any:
        """Return an event of the run with the original paths.

        Args:
            event: the event, or a part of it, as JSON holds it.
        """
        if isinstance(event, str):
            return event.replace(str(self._copy), str(self._original))
        if isinstance(event, list):
            return [self.restored(part) for part in event]
        if isinstance(event, dict):
            return {key: self.restored(part) for key, part in event.items()}
        return event


def _ignored(folder: str, names: list[str]) -> set[str]:
    """Return the names in a folder that are not copied; pipes, sockets and devices have no content."""
    modes = {name: os.lstat(os.path.join(folder, name)).st_mode for name in names}
    return _NOT_COPIED(folder, names) | {name for name in names if stat.S_IFMT(modes[name]) not in _COPIED}
