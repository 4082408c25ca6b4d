"""Callbacks after a fork, and at the end of a process, even if it ends by `os._exit` as forked workers do."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable

_calls: list[Callable[[], None]] = []
_done: set[int] = set()  # the processes that have ended: a fork inherits those of its parents


def at_end(call: Callable[[], None]) -> None:
    """Register a callback for the end of this process and of its forks, unless a signal kills them.

    Args:
        call: the callback; it runs once in each process, after the program's own exit handlers.
    """
    if not _calls:
        atexit.register(_end)
        _watch_exit()
    _calls.append(call)


def _end() -> None:
    if os.getpid() not in _done:
        _done.add(os.getpid())
        for call in _calls:
            call()


def _watch_exit() -> None:
    leave = os._exit

    def _exit(status: int) -> None:
        try:
            _end()
        finally:
            leave(status)

    os._exit = _exit  # type: ignore[assignment]


def after_fork(function: Callable[[], None]) -> None:
    """Call a function in each process that this one forks; Windows has no forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
