"""Remove caches."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress

from devicefix.runner import cache

_VERSION = re.compile(r"\d+\.\d+\.\d+\S*")


def find(top: str) -> Iterator[str]:
    """Yield the caches at or below a folder."""
    for folder, inner, _ in os.walk(top):
        path = os.path.normpath(folder)
        with suppress(OSError):
            if cache.is_tagged(path):
                inner.clear()
                yield path


def remove(folder: str) -> bool:
    """Remove a cache, and return whether that was done: a folder that has anything else in it is kept.

    Raises:
        OSError: a part of it can't be removed.
    """
    others = set(os.listdir(folder)) - {cache.TAG, cache.IGNORE}
    if not all(map(_VERSION.fullmatch, others)):
        return False
    shutil.rmtree(folder)
    return True
