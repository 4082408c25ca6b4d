"""The program to verify: where its own modules are, and what they are rewritten to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from devicefix.config.settings import Settings
from devicefix.files import discover as files
from devicefix.runner.run import check_files

_NOT_COPIED = shutil.ignore_patterns(".git", "__pycache__", ".venv", "venv")

New = tuple[str, bytes, list[int]]


@dataclass(slots=True)
class Program:
    """A program and its rewritten modules.

    Attributes:
        roots: the folders whose modules are the program's own, as real paths.
        rewritten: for each module that changes, by its real path: the path of its new source.
        fixes: for each of these, the lines that its fixes change.
        errors: what could not be looked at, and why.
    """

    roots: tuple[str, ...]
    rewritten: dict[str, str] = field(default_factory=dict)
    fixes: dict[str, list[int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def prepare(
    sources: Iterable[Path], settings: Settings, folder: Path, rewritten: Iterable[New] | None = None
) -> Program:
    """Rewrite a program's modules, and put what comes of it elsewhere.

    Args:
        sources: the files and folders that hold them.
        settings: which rules are on, and which fixes are wanted.
        folder: where to put the new sources.
        rewritten: what the modules are rewritten to, where that is known already.
    """
    sources = list(sources)
    folders = {os.path.realpath(each if each.is_dir() else each.parent) for each in sources}
    program = Program(tuple(sorted(folders)))
    for path, content, lines in _rewritten(sources, settings, program) if rewritten is None else rewritten:
        real = os.path.realpath(path)
        source = folder / f"{len(program.rewritten)}.py"
        source.write_bytes(content)
        program.rewritten[real] = str(source)
        program.fixes[real] = sorted(set(lines))
    return program


def _rewritten(sources: list[Path], settings: Settings, program: Program) -> Iterator[New]:
    found = files.find(
        sources,
        settings.exclude,
        settings.root,
        lambda problem: None,
        extend_exclude=settings.extend_exclude,
    )
    for outcome in check_files(found, replace(settings, fix=True, quiet=True)):
        if outcome.error:
            program.errors.append(f"{outcome.path}: {outcome.error}")
        elif outcome.result.output is not None:
            lines = [finding.line for finding in outcome.result.fixed]
            yield outcome.path, outcome.result.output, lines


def copy(folder: Path, into: Path) -> Path:
    """Copy a program's folder, without what only tools need of it.

    Raises:
        OSError: something in it cannot be read, or there is no room.
    """
    target = into / (folder.name or "copy")
    shutil.copytree(folder, target, symlinks=True, ignore=_NOT_COPIED)
    return target


def there(path: str, home: Path, copy: Path) -> str:
    """Where a path inside a folder is in the folder's copy; other words stay as they are."""
    if not os.path.exists(path):
        return path
    real = Path(os.path.realpath(path))
    return str(copy / real.relative_to(home)) if real.is_relative_to(home) else path


def moved(program: Program, home: Path, copy: Path) -> Program:
    """The same program in a copy of its folder."""
    return Program(
        tuple(there(root, home, copy) for root in program.roots),
        {there(path, home, copy): source for path, source in program.rewritten.items()},
        {there(path, home, copy): lines for path, lines in program.fixes.items()},
        program.errors,
    )


def home(event: Any, home_folder: Path, copy: Path) -> Any:
    """An event of a run in a copy, as if it had been in the folder itself."""
    if home_folder == copy:
        return event
    if isinstance(event, str):
        return event.replace(str(copy), str(home_folder))
    if isinstance(event, list):
        return [home(each, home_folder, copy) for each in event]
    if isinstance(event, dict):
        return {key: home(each, home_folder, copy) for key, each in event.items()}
    return event
