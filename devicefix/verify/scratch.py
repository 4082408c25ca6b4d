"""Scratch copies: a run in a copy of the program's folder, reported as if in the folder itself."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from devicefix.files.system import is_junction, make_link
from devicefix.verify.commands import Command
from devicefix.verify.copying import copy_folder
from devicefix.verify.program import Program
from devicefix.verify.runtime.plan import Plan


class Scratch:
    """A copy of a program's folder.

    A link in the folder leads to the same file, or to its copy if that is in the folder, too: a program that
    writes through it changes nothing in the folder itself.

    Args:
        original: the program's folder, as a real path.
        parent: the folder to make the copy in.

    Raises:
        OSError: the disk is full.
    """

    def __init__(self, original: Path, parent: Path) -> None:
        self._original = original
        self._copy = parent / (original.name or "copy")
        copy_folder(original, self._copy)
        for folder, folders, names in os.walk(self._copy):
            for link in [link for name in folders + names if _is_link(link := Path(folder, name))]:
                self._redirect(link)
            folders[:] = [name for name in folders if not is_junction(Path(folder, name))]

    def _redirect(self, link: Path) -> None:
        if not _is_link(self._original / link.relative_to(self._copy)):
            return  # it leads to a folder that is not copied
        target = Path(os.path.realpath(self._original / link.relative_to(self._copy)))
        if target.is_relative_to(self._original):
            copied = self._copy / target.relative_to(self._original)
            target = target if target.exists() and not copied.exists() else copied  # not everything is copied
        if os.path.realpath(link) != str(target):
            link.unlink()
            make_link(os.fspath(target), link, os.fspath(target))

    def path(self, path: str) -> str:
        """Return the path of a file's copy, a link for a link; any other string stays as it is."""
        if not os.path.exists(path):
            return path
        folder, name = os.path.split(path)
        for real in (Path(os.path.realpath(folder), name), Path(os.path.realpath(path))):
            if name != os.pardir and real.is_relative_to(self._original):
                copy = self._copy / real.relative_to(self._original)
                if copy.exists():
                    return str(copy)
        return path

    def command(self, command: Command) -> Command:
        """Return the command with the paths of the copies."""
        folder = os.path.realpath(command.folder)
        words = [self._word(word, folder) for word in command.words]
        # in a linked work tree, git would refresh the index of the original
        environment = {**command.environment, "GIT_OPTIONAL_LOCKS": "0"}
        return replace(command, words=words, folder=Path(self.path(folder)), environment=environment)

    def _word(self, word: str, folder: str) -> str:
        # Relative paths inside the folder stay correct if the command moves to the copy too.
        whole = os.path.normpath(os.path.join(folder, word))
        if os.path.isabs(word) or not Path(folder).is_relative_to(self._original):
            return self.path(word)
        inside = Path(whole).is_relative_to(self._original)
        return word if inside or not os.path.exists(whole) else whole

    def program(self, program: Program) -> Program:
        """Return the program with the paths of the copies.

        The original modules remain in it, since Python imports a package that is installed for editing
        from there.
        """
        roots = tuple(dict.fromkeys([*map(self.path, program.roots), *program.roots]))
        copies = {self.path(path): source for path, source in program.rewritten.items()}
        return replace(program, roots=roots, rewritten={**program.rewritten, **copies})

    def plan(self, plan: Plan) -> Plan:
        """Return a plan whose lines are those of the copies."""
        uses = plan.autocast and [(self.path(file), line, what) for file, line, what in plan.autocast]
        return replace(plan, autocast=uses)

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


def _is_link(path: Path) -> bool:
    return path.is_symlink() or (path.exists() and is_junction(path))
