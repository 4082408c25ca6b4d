"""The standard input of devicefix, from which every run of a program reads from the start."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

_STDIN = 0
_BLOCK = 1 << 16


class Input:
    """The input of the runs of one program.

    A file is rewound for each run. What comes through a pipe is kept when a run reads it, and repeated for
    the next one. So nothing waits for the end of an input that the program does not read.
    """

    def __init__(self) -> None:
        try:
            self._mode = 0 if os.isatty(_STDIN) else os.fstat(_STDIN).st_mode
        except OSError:  # it is closed
            self._mode = 0
        self._start = os.lseek(_STDIN, 0, os.SEEK_CUR) if stat.S_ISREG(self._mode) else 0
        self._kept: IO[bytes] | None = None
        self._file = threading.Lock()
        self._reading = threading.Lock()

    @contextmanager
    def open(self) -> Iterator[int | None]:
        """Return the `stdin` of `subprocess.Popen` for the next run.

        A run has a session of its own, which cannot read from the terminal: trying to would stop the program.
        """
        if not self._mode:
            yield subprocess.DEVNULL
        elif stat.S_ISFIFO(self._mode) or stat.S_ISSOCK(self._mode):
            source, target = os.pipe()
            threading.Thread(target=self._feed, args=(target,), daemon=True).start()
            try:
                yield source
            finally:
                os.close(source)
        else:
            if stat.S_ISREG(self._mode):
                os.lseek(_STDIN, self._start, os.SEEK_SET)
            yield None

    def _feed(self, pipe: int) -> None:
        position = 0
        with suppress(OSError), open(pipe, "wb") as file:  # the program may end before it has read everything
            while data := self._after(position):
                file.write(data)
                file.flush()
                position += len(data)

    def _after(self, position: int) -> bytes:
        """Return the next bytes after a position; none at the end of the input."""
        if kept := self._known(position):
            return kept
        with self._reading:  # another run's thread may still be waiting for input
            return self._known(position) or self._more()

    def _known(self, position: int) -> bytes:
        with self._file:
            if self._kept is None:
                self._kept = tempfile.TemporaryFile()  # noqa: SIM115 (for all runs)
            self._kept.seek(position)
            return self._kept.read(_BLOCK)

    def _more(self) -> bytes:
        data = os.read(_STDIN, _BLOCK)
        with self._file:
            assert self._kept is not None  # `_known` comes first
            self._kept.seek(0, os.SEEK_END)
            self._kept.write(data)
        return data
