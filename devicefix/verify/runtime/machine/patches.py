"""Replacement and restoration of attributes of torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_ABSENT = object()


class Patches:
    """A set of replacements."""

    def __init__(self) -> None:
        self._undone = False
        self._other: list[tuple[Any, Any, Any]] = []  # owner, name, and the value that is not in use

    def set(self, owner: Any, name: Any, value: Any) -> None:
        """Replace an attribute of a module or class, or an item of a dict."""
        self._other.append((owner, name, _exchange(owner, name, value)))

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Restore all original values for a block, which may contain further such blocks."""
        if self._undone:
            yield
            return
        self.swap()
        self._undone = True
        try:
            yield
        finally:
            self.swap()
            self._undone = False

    def swap(self) -> None:
        """Restore all original values, or put all replacements back."""
        others = self._other[::-1]
        self._other = [(owner, name, _exchange(owner, name, value)) for owner, name, value in others]


def _exchange(owner: Any, name: Any, value: Any) -> Any:
    """Set an attribute, or an item of a dict, and return what it was."""
    if isinstance(owner, dict):
        old = owner.pop(name, _ABSENT)
        if value is not _ABSENT:
            owner[name] = value
        return old
    old = vars(owner).get(name, _ABSENT)
    if value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
    return old
