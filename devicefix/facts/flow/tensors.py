"""Read what functions and methods do to tensors and arrays from `tensors.toml`."""

from __future__ import annotations

from devicefix.config import toml

_TABLE = toml.beside(__file__)

ATTRIBUTES, METHODS, FUNCTIONS = (
    {use: tuple(names) for use, names in _TABLE[kind].items()}
    for kind in ("attributes", "methods", "functions")
)


def in_place(method: str) -> bool:
    """Return whether a tensor's method of this name works on the tensor itself, and returns it."""
    return method.endswith("_") and not method.startswith("_") and not method.endswith("__")


def changes_numbers(method: str) -> bool:
    """Return whether a tensor's method of this name changes the numbers in it."""
    return in_place(method) and method not in METHODS["keep"]
