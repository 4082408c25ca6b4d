"""Remove caches.

A cloned repository may hold a folder that looks like a cache. So only files are removed that a cache consists
of, and no link is followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from devicefix.runner import cache

_VERSION = re.compile(r"\d+\.\d+\.\d+\S*")
_ENTRY = re.compile(r"[0-9a-f]{32}\.json|tmp[a-z0-9_]{8}")  # the second is of a run that was killed


def find(top: str) -> Iterator[str]:
    """Yield the caches at or below a folder."""
    for folder, inner, _ in os.walk(top):
        path = os.path.normpath(folder)
        with suppress(OSError):
            if cache.is_tagged(path):
                inner.clear()
                yield path


def remove(folder: str) -> bool:
    """Remove a cache, and return whether nothing is left of it.

    Raises:
        OSError: a file cannot be removed.
    """
    with os.scandir(folder) as entries:
        versions = [entry.path for entry in entries if _VERSION.fullmatch(entry.name) and _is_folder(entry)]
    emptied = [_remove_version(version) for version in versions]
    names = {cache.TAG, cache.IGNORE}
    if not all(emptied) or set(os.listdir(folder)) - names:
        return False
    for name in sorted(names):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))
    os.rmdir(folder)
    return True


def _remove_version(folder: str) -> bool:
    """Remove the entries that a version of devicefix has made, and the folder if it is empty then."""
    with os.scandir(folder) as entries:
        ours = [entry.path for entry in entries if _ENTRY.fullmatch(entry.name) and not _is_folder(entry)]
    for path in ours:
        os.unlink(path)
    if os.listdir(folder):
        return False
    os.rmdir(folder)
    return True


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)
