"""The files of a work tree that the given files import: the few files of a commit depend on them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from devicefix.config.sizes import CODE, LARGEST, read, size
from devicefix.facts.project import ProjectFile, candidates
from devicefix.files.discover import work_tree
from devicefix.files.system import common_folders
from devicefix.runner.pool import POOL_FROM


def imported(files: list[ProjectFile]) -> list[ProjectFile]:
    """Return what the given files import from their own work tree, directly or not.

    So base classes, star imports and flags are known where only a few files are checked. As many files as a
    pool is used for are a project by themselves.

    Args:
        files: the given files, which are left out of the result.
    """
    if not files or len(files) > POOL_FROM:
        return []
    folders = map(Path, common_folders(given.path for given in files))
    tops = [(work_tree(folder) or folder).resolve() for folder in folders]
    known = {given.normal for given in files}
    found: list[ProjectFile] = []
    todo = list(files)
    while todo:
        importer = todo.pop()
        for module in importer.imports:
            for path in candidates(importer.path, module):
                if path in known or not (os.path.isfile(path) and _is_in(path, tops)):
                    continue
                known.add(path)
                file = _file_at(path, os.stat(path).st_mtime_ns)
                if file is not None:
                    found.append(file)
                    todo.append(file)
    return found


def _is_in(path: str, folders: Iterable[Path]) -> bool:
    real = Path(path).resolve()
    return any(real.is_relative_to(folder) for folder in folders)


@lru_cache(maxsize=4096)
def _file_at(path: str, _changed: int) -> ProjectFile | None:
    """Return a file, cached while it is unchanged: editors and flake8 ask again and again."""
    try:
        return ProjectFile(read(path, size(LARGEST) // CODE), path)
    except OSError:
        return None
