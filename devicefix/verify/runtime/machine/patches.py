"""Replacing what is in torch, and putting it back."""

from __future__ import annotations

from typing import Any

_ABSENT = object()


class Patches:
    """What has been replaced."""

    def __init__(self) -> None:
        self._other: list[tuple[Any, Any, Any]] = []  # for each place the value that is not there now

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Give a module or class another attribute."""
        self._other.append((owner, name, _exchange(owner, name, value)))

    def item(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Give a table another value."""
        self._other.append((table, key, _exchange(table, key, value)))

    def swap(self) -> None:
        """Put everything back; or again to where it was."""
        self._other = [
            (owner, name, _exchange(owner, name, value)) for owner, name, value in self._other[::-1]
        ]


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
