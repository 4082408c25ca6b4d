"""Call something at the end of a process, also of one that ends by `os._exit`, as forked workers do."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable

_calls: list[Callable[[], None]] = []
_done: int | None = None  # the process that has been ended; a fork of it is another one


def at_end(call: Callable[[], None]) -> None:
    """Call something as this process, or a fork of it, ends; not when a signal kills it.

    Args:
        call: what to call, once in each process, after the program's own exit handlers.
    """
    if not _calls:
        atexit.register(_end)
        _watch_exit()
    _calls.append(call)


def _end() -> None:
    global _done
    if _done != os.getpid():
        _done = os.getpid()
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
