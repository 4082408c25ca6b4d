"""Signals that ask devicefix to end: the program ends too, and the files of its runs are removed."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_ENDING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")


class _Handler:
    """A handler that raises an exception for the first signal, as soon as it may, and ignores the rest."""

    def __init__(self) -> None:
        self.holds = 0
        self.reset()

    def reset(self) -> None:
        """Be ready for the first signal."""
        self.pending: int | None = None
        self.raised = False

    def __call__(self, number: int, _: FrameType | None) -> None:
        if not self.raised:
            self.pending = number
            self.deliver()

    def deliver(self) -> None:
        """Raise the exception of a signal that has come, unless it is held."""
        if self.pending is None or self.holds:
            return
        number, self.pending, self.raised = self.pending, None, True
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


_handler = _Handler()


@contextmanager
def handled(names: Iterable[str], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle signals in a block, except those that this process ignores.

    Args:
        names: the names of the signals, of which each system has some.
        handler: the handler.
    """
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    caught = [number for number in numbers if before[number] not in (signal.SIG_IGN, None)]
    for number in caught:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, before[number])


@contextmanager
def catching() -> Iterator[None]:
    """Turn signals that would end this process at once into exceptions, so that it can clean up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _handler.reset()
    with handled(_ENDING, _handler):
        yield


@contextmanager
def held() -> Iterator[None]:
    """Let no signal interrupt what must be complete: starting a program, ending it, removing its files."""
    _handler.holds += 1
    try:
        yield
    finally:
        _handler.holds -= 1
        _handler.deliver()


@contextmanager
def temporary_folder(parent: str | None = None) -> Iterator[Path]:
    """Make a folder that is removed at the end, whatever a program has made of it.

    Args:
        parent: the folder to make it in; None for the one for temporary files.
    """
    hidden = "" if parent in (None, tempfile.gettempdir()) else "."
    with held():
        folder = tempfile.TemporaryDirectory(
            prefix=f"{hidden}devicefix-", dir=parent, ignore_cleanup_errors=True
        )
    try:
        yield Path(os.path.realpath(folder.name))
    finally:
        with held():
            folder.cleanup()
