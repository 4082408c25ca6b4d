"""The record of a file: what the other files have asked it, and the result of its check."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from devicefix.facts.project import Answers
    from devicefix.model import Outcome

Stamp = list[int]  # the time of a file's last change in ns, and its size
Seen = dict[str, Stamp | None]  # the files and folders that an answer depends on; None for a missing one


@dataclass(frozen=True, slots=True)
class Record:
    """A file as a run has seen it.

    Attributes:
        digest: the digest of the file's content; empty where nothing is cached.
        stamp: taken before the file was read.
        outcome: None if there is nothing to report.
        answers: what the check asked of the project, with the answers. With a project that gives the same
            answers, the outcome is the same. None if the file has not been checked.
        exports: what the other files have asked this one, with the answers.
        learned: what a worker has asked all files for this check, and no other check before.
    """

    digest: str = ""
    stamp: Stamp | None = None
    outcome: Outcome | None = None
    answers: Answers | None = None
    exports: dict[str, Any] = field(default_factory=dict)
    learned: dict[str, dict[str, Any]] = field(default_factory=dict)


def stamp(path: str) -> Stamp | None:
    """Return the time of a file's last change in ns, and its size; take it before reading the file.

    None for a missing file, and for a pipe or device, which is never read. A folder's changes with its names.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    is_known = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return [status.st_mtime_ns, status.st_size] if is_known else None
