"""The program under verification: its modules, and their rewritten sources."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from devicefix.config.settings import Settings
from devicefix.files import discover as files
from devicefix.runner.run import check_files

New = tuple[str, bytes, list[int]]  # a module's path, its rewritten source, and the lines with fixes


@dataclass(slots=True)
class Program:
    """A program and its rewritten modules.

    Attributes:
        roots: the folders that hold the program's own modules, as real paths.
        rewritten: the path of the rewritten source of each module that changes, by the module's real path.
        fixes: the lines with fixes in each of these modules.
        errors: the files that could not be rewritten, and why.
    """

    roots: tuple[str, ...]
    rewritten: dict[str, str] = field(default_factory=dict)
    fixes: dict[str, list[int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def prepare(
    sources: Iterable[Path], settings: Settings, folder: Path, rewritten: Iterable[New] | None = None
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
    for path, content, lines in _rewritten(sources, settings, program) if rewritten is None else rewritten:
        real = os.path.realpath(path)
        source = folder / f"{len(program.rewritten)}.py"
        source.write_bytes(content)
        program.rewritten[real] = str(source)
        program.fixes[real] = sorted(set(lines))
    return program


def _rewritten(sources: list[Path], settings: Settings, program: Program) -> Iterator[New]:
    found = files.find(sources, settings.exclusions, _ignore)
    for outcome in check_files(found, replace(settings, fix=True, quiet=True)):
        if outcome.error:
            program.errors.append(f"{outcome.path}: {outcome.error}")
        elif outcome.result.output is not None:
            lines = [finding.line for finding in outcome.result.fixed]
            yield outcome.path, outcome.result.output, lines


def _ignore(_: OSError) -> None:
    """Skip a folder that cannot be read: the program cannot import from it either."""
