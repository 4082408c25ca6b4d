"""The standard input of devicefix, which the runs of a program read."""

from __future__ import annotations

import os
import stat
import subprocess

_STDIN = 0


class Input:
    """The input of the runs of one program: a file, which each of them reads, or a pipe for the first."""

    def __init__(self) -> None:
        try:
            self._mode = os.fstat(_STDIN).st_mode
        except OSError:  # it is closed
            self._mode = 0
        self._start = os.lseek(_STDIN, 0, os.SEEK_CUR) if stat.S_ISREG(self._mode) else 0
        self._is_read = False

    def next(self) -> int | None:
        """Return the `stdin` of `subprocess.Popen` for the next run.

        A run has a session of its own, which cannot read from the terminal: trying to would stop the program.
        """
        if stat.S_ISREG(self._mode):
            os.lseek(_STDIN, self._start, os.SEEK_SET)
            return None
        is_first, self._is_read = not self._is_read, True
        is_pipe = stat.S_ISFIFO(self._mode) or stat.S_ISSOCK(self._mode)
        return None if is_pipe and is_first else subprocess.DEVNULL
