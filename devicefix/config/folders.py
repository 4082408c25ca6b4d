"""Questions about a folder whose answers depend on the folders that hold it; each is asked once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")


def nearest_above(
    folder: str, known: dict[str, Value | None], find: Callable[[str], Value | None]
) -> Value | None:
    """Return what is found in a folder, or else in the nearest one above it.

    Args:
        folder: the folder, absolute.
        known: what is nearest to the folders so far, to be extended.
        find: returns what is in a folder, or None.
    """
    passed = []
    found = None
    for place in (folder, *map(str, Path(folder).parents)):
        if place in known:
            found = known[place]
            break
        passed.append(place)
        found = find(place)
        if found is not None:
            break
    known |= dict.fromkeys(passed, found)
    return found


class Below(dict[str, bool]):
    """Folders, each with whether it is excluded: by itself, or by one that holds it.

    Args:
        excludes: whether a folder is excluded by itself, which is asked once.
    """

    def __init__(self, excludes: Callable[[str], bool]) -> None:
        self._excludes = excludes
        self[""] = False

    def __missing__(self, folder: str) -> bool:
        unknown = [folder]
        while (parent := os.path.dirname(unknown[-1])) not in self:  # there may be more than Python may call
            unknown.append(parent)
        for inner in reversed(unknown):
            self[inner] = self[os.path.dirname(inner)] or self._excludes(inner)
        return self[folder]
