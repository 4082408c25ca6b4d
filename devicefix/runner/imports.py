"""The files of a work tree that the given files import: the few files of a commit depend on them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from devicefix.config.sizes import CODE, LARGEST, read, size
from devicefix.facts.exports import Summary, summarize
from devicefix.facts.project import candidates
from devicefix.files.discover import work_tree
from devicefix.files.system import common_folders
from devicefix.runner.pool import POOL_FROM


def imported(summaries: list[Summary]) -> list[Summary]:
    """Return the summaries of what the given files import from their own work tree, directly or not.

    So base classes, star imports and flags are known where only a few files are checked. As many files as a
    pool is used for are a project by themselves.

    Args:
        summaries: those of the given files, which are left out of the result.
    """
    if not summaries or len(summaries) > POOL_FROM:
        return []
    folders = map(Path, common_folders(given.path for given in summaries))
    tops = [(work_tree(folder) or folder).resolve() for folder in folders]
    known = {os.path.normpath(given.path) for given in summaries}
    found: list[Summary] = []
    todo = list(summaries)
    while todo:
        importer = todo.pop()
        for module in importer.imports:
            for path in candidates(importer.path, module):
                if path in known or not (os.path.isfile(path) and _is_in(path, tops)):
                    continue
                known.add(path)
                summary = _summary_at(path, os.stat(path).st_mtime_ns)
                if summary is not None:
                    found.append(summary)
                    todo.append(summary)
    return found


def _is_in(path: str, folders: Iterable[Path]) -> bool:
    real = Path(path).resolve()
    return any(real.is_relative_to(folder) for folder in folders)


@lru_cache(maxsize=4096)
def _summary_at(path: str, _changed: int) -> Summary | None:
    """Return a file's summary, cached while it is unchanged: editors and flake8 ask again and again."""
    try:
        return summarize(read(path, size(LARGEST) // CODE), path)
    except OSError:
        return None
