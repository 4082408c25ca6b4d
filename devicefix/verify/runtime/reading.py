"""Give a program that reads its own source files the rewritten text, as if they were rewritten on disk.

Programs read their sources to execute a configuration (`exec(open(path).read())`), to copy them, or to write
scripts that derive from them.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import pathlib
import sys
from types import FrameType
from typing import Any

from devicefix.verify.runtime.modules import Modules

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_READING = frozenset({"r", "rt", "tr", "rb", "br"})
_BEFORE_OPENER = 4  # arguments of `open` between the mode and the opener
_open = open


def install(modules: Modules) -> None:
    """Make `open` read the rewritten text of the user's files.

    What shows lines to people reads the user's text: `linecache` and `tokenize` keep the function that they
    know already, and devicefix's own frames call Python's display of errors, which uses `io.open`.

    Args:
        modules: the modules with their sources.
    """
    opened: Any = _Open(modules)
    builtins.open = io.open = opened
    accessor: Any = getattr(pathlib, "_NormalAccessor", None)  # of Python 3.10
    if accessor is not None:
        accessor.open = opened


class _Open:
    """The function `open`. It is an object, since a function would become a method as a class attribute."""

    def __init__(self, modules: Modules) -> None:
        functools.update_wrapper(self, _open)
        self.__module__ = "builtins"
        self._modules = modules

    def __call__(self, file: Any, mode: Any = "r", *arguments: Any, **options: Any) -> Any:
        rewritten = self._rewritten(file) if mode in _READING and not _is_ours(sys._getframe(1)) else None
        opener = len(arguments) > _BEFORE_OPENER or options.get("opener") is not None
        if rewritten is not None and not opener:
            options["opener"] = lambda _, flags: os.open(rewritten, flags)
        return _open(file, mode, *arguments, **options)

    def _rewritten(self, file: Any) -> str | None:
        """Return the path of the rewritten text of a source file, or None for any other file."""
        try:
            path = os.fsdecode(file)
        except TypeError:  # a descriptor
            return None
        source = self._modules.rewritten(path) if path.endswith((".py", ".pyw")) else None
        return source.path if source else None

    def __reduce__(self) -> str:
        return "open"


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OURS)
