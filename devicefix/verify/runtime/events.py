"""What happens in the processes of a run, one line of JSON each, in one file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any


class Events:
    """Where a process writes what happens; forked ones go on writing to the same file.

    Args:
        path: the file; each line goes there at once, since a process may end at any moment.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._path = path

    def emit(self, kind: str, **fields: Any) -> None:
        """Write an event down.

        Args:
            kind: what has happened.
            fields: what there is to say about it, as JSON knows it. `pid` and `process` are added.
        """
        line = json.dumps({"kind": kind, "pid": os.getpid(), "process": _name(), **fields})
        data = line.encode() + b"\n"
        try:
            os.write(self._file, data)
        except OSError:  # programs that become daemons close every file that they find open
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(self._file, data)


def _name() -> str:
    """What a process is called in every run of the program, whatever its number."""
    arguments = getattr(sys, "argv", None) or [""]
    words = [os.path.basename(arguments[0])]
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None:
        words.append(multiprocessing.current_process().name)
    if "RANK" in os.environ:
        words.append(f"rank {os.environ['RANK']}")
    return " ".join(word for word in words if word)


def read(path: str) -> Iterator[dict[str, Any]]:
    """The events of a run, in the order in which they were written.

    Args:
        path: the file; where there is none, nothing has happened.
    """
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:  # cut off by the end of its process
                continue
