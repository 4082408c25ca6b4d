"""Events of a run: one file for all its processes, with one line of JSON for each event."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any

_WINDOWS = os.name == "nt"
_TURN = threading.Lock()


class Events:
    """The recorder of events. Forked processes write to the same file.

    Args:
        path: the file. Writes are not buffered, since a process may end at any moment.
        watch: whether to record anything.
    """

    def __init__(self, path: str, watch: bool = True) -> None:
        self._path = path
        self._watch = watch
        if watch:
            self._open()

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def emit(self, kind: str, **fields: Any) -> None:
        """Record an event.

        Args:
            kind: the kind of event.
            **fields: its fields, as JSON types. `pid` and `process` are added.
        """
        if not self._watch:
            return
        line = json.dumps({"kind": kind, "pid": os.getpid(), "process": _name(), **fields})
        data = line.encode() + b"\n"
        try:
            _append(self._file, data)
        except OSError:  # programs that become daemons close all open files
            self._open()
            _append(self._file, data)


def _append(file: int, data: bytes) -> None:
    """Write to the end of a file in one step; on Windows, where that takes two, processes take turns."""
    if not _WINDOWS:
        os.write(file, data)
        return
    msvcrt = import_module("msvcrt")
    with _TURN:
        os.lseek(file, 0, os.SEEK_SET)  # they lock the first byte
        msvcrt.locking(file, msvcrt.LK_LOCK, 1)
        try:
            os.write(file, data)
        finally:
            os.lseek(file, 0, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_UNLCK, 1)


def _name() -> str:
    """Return a name for the process that is the same in every run of the program."""
    arguments = getattr(sys, "argv", None) or [""]
    words = [os.path.basename(arguments[0])]
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None:
        words.append(multiprocessing.current_process().name)
    if "RANK" in os.environ:
        words.append(f"rank {os.environ['RANK']}")
    return " ".join(word for word in words if word)


def read(path: str) -> Iterator[dict[str, Any]]:
    """Yield the events of a run, in the order in which they were written.

    Args:
        path: the file. Without a file there are no events.
    """
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:  # the process ended while writing
                continue
