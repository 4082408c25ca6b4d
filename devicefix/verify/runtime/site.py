"""The line of the user's program that is running."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import NamedTuple

OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD = os.path.join(os.path.dirname(os.path.realpath(os.__file__)), "")
_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class Site(NamedTuple):
    """A line of the user's program.

    Attributes:
        file: the path of the module, as in its code objects.
        line: the line number in the user's file, from 1.
        library: the name of the library (other than torch) through which the line acts, or None.
    """

    file: str
    line: int
    library: str | None = None


class Sites:
    """Finds the user's frames on the stack.

    Args:
        roots: the folders that hold the user's own modules, as real paths.
    """

    def __init__(self, roots: tuple[str, ...]) -> None:
        self._roots = tuple(os.path.join(root, "") for root in roots)
        self._kinds: dict[str, str | None] = {}

    def current(self, depth: int = 1) -> Site:
        """Return the nearest line of the user's program, or else of the library that called torch.

        Args:
            depth: how many frames up to begin; 1 is the caller.
        """
        frame: FrameType | None = sys._getframe(depth)
        first: tuple[str, int] | None = None
        library: str | None = None
        while frame is not None:
            name = frame.f_code.co_filename
            kind = self._kinds[name] if name in self._kinds else self._kind(name)
            if kind == "":
                return Site(name, frame.f_lineno, library)
            if kind is not None and first is None:
                first, library = (name, frame.f_lineno), kind
            frame = frame.f_back
        return Site(*first, library) if first else Site("<unknown>", 0)

    def is_project(self, name: str) -> bool:
        """Return whether a file name is that of one of the user's modules."""
        return (self._kinds[name] if name in self._kinds else self._kind(name)) == ""

    def _kind(self, name: str) -> str | None:
        """Return "" for the user's files, None for torch, Python and devicefix, else the library's name."""
        kind = self._kinds[name] = self._judge(name)
        return kind

    def _judge(self, name: str) -> str | None:
        if name in ("<string>", "<stdin>"):  # `python -c`, or code that the program creates
            return ""
        if name.startswith(("<", OURS)):
            return None
        path = os.path.realpath(name)
        for mark in _LIBRARIES:
            if mark in path:
                package = path.rpartition(mark)[2].split(os.sep)[0].removesuffix(".py")
                return None if package in ("torch", "functorch") else package
        if path.startswith(self._roots):
            return ""
        parts = path.split(os.sep)
        if "torch" in parts[-6:-1]:  # a build of torch that is not an installed package
            return None
        return None if path.startswith(_STANDARD) else os.path.basename(path).removesuffix(".py")
