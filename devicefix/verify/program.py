"""The program under verification: its modules, and their rewritten sources."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from devicefix.config.settings import Settings
from devicefix.files import discover as files
from devicefix.model import Outcome
from devicefix.runner.run import check_files


class Rewritten(NamedTuple):
    """A rewritten module.

    Attributes:
        path: its path.
        content: its new source.
        fixes: the lines with fixes in the user's file, from 1.
        origins: for each line of the new source, the line of the user's file that it belongs to, from 1.
    """

    path: str
    content: bytes
    fixes: list[int]
    origins: list[int]

    @classmethod
    def of(cls, outcome: Outcome) -> Rewritten | None:
        """Return the module of a file that changes, None for any other."""
        result = outcome.result
        if result.output is None:
            return None
        fixes = sorted({finding.line for finding in result.fixed})
        return cls(outcome.path, result.output, fixes, [line + 1 for line in result.origins])


@dataclass(slots=True)
class Program:
    """A program and its rewritten modules.

    Attributes:
        roots: the folders that hold the program's own modules, as real paths.
        rewritten: the path of the rewritten source of each module that changes, by the module's real path.
        fixes: the lines with fixes in each of these modules.
        origins: the user's line of each new line in each of these modules.
        errors: the files that could not be rewritten, and why.
        notebook: the notebook that it runs, as `Plan.notebook` has it; empty for none.
    """

    roots: tuple[str, ...]
    rewritten: dict[str, str] = field(default_factory=dict)
    fixes: dict[str, list[int]] = field(default_factory=dict)
    origins: dict[str, list[int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    notebook: dict[str, Any] = field(default_factory=dict)

    def add(self, module: Rewritten, source: Path) -> None:
        """Add a module.

        Args:
            module: the module.
            source: where to store its new source.
        """
        real = os.path.realpath(module.path)
        source.write_bytes(module.content)
        self.rewritten[real] = str(source)
        self.fixes[real] = module.fixes
        self.origins[real] = module.origins


def prepare(
    sources: Iterable[Path], settings: Settings, folder: Path, rewritten: Iterable[Rewritten] | None = None
) -> Program:
    """Rewrite a program's modules, and store the new sources in another folder.

    Args:
        sources: the files and folders that hold the modules.
        settings: the settings to rewrite with.
        folder: where to store the new sources.
        rewritten: the rewritten modules, if they are known already.
    """
    sources = list(sources)
    folders = {os.path.realpath(path if path.is_dir() else path.parent) for path in sources}
    program = Program(tuple(sorted(folders)))
    for module in _rewritten(sources, settings, program) if rewritten is None else rewritten:
        program.add(module, folder / f"{len(program.rewritten)}.py")
    return program


def _rewritten(sources: list[Path], settings: Settings, program: Program) -> Iterator[Rewritten]:
    found = files.find(sources, settings.exclusions, _ignore)
    for outcome in check_files(found, replace(settings, fix=True, quiet=True)):
        if outcome.error:
            program.errors.append(f"{outcome.path}: {outcome.error}")
        elif (module := Rewritten.of(outcome)) is not None:
            yield module


def _ignore(_: OSError) -> None:
    """Skip a folder that cannot be read: the program cannot import from it either."""
