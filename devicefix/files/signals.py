"""Signals that ask devicefix to end: what it has started ends too, and its temporary files are removed."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from devicefix.files.system import ENDING, handled


class _Handler:
    """A handler that raises an exception for the first signal, as soon as it may, and ignores the rest."""

    def __init__(self) -> None:
        self.holds = 0
        self.reset()

    def reset(self) -> None:
        """Be ready for the first signal."""
        self.pending: int | None = None
        self.raised = False
        self.process = os.getpid()

    def __call__(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self.process:  # a worker, which has nothing to clean up
            os._exit(128 + number)
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
def catching() -> Iterator[None]:
    """Turn signals that would end this process at once into exceptions, so that it can clean up."""
    _handler.reset()
    with handled(ENDING, _handler):
        yield


@contextmanager
def held() -> Iterator[None]:
    """Let no signal interrupt what must be complete: starting a program, replacing a file, removing one."""
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
    prefix = "devicefix-" if parent in (None, tempfile.gettempdir()) else ".devicefix-"
    with held():
        folder = tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True)
    try:
        yield Path(os.path.realpath(folder.name))
    finally:
        with held():
            folder.cleanup()
