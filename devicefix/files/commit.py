"""Replace many files together: all of them or none.

Every file is written next to its place first. What remains is to rename them, which no signal but SIGKILL
interrupts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress

from devicefix.files import system
from devicefix.files.write import (
    DONE,
    Change,
    Staged,
    folders_of,
    refuse_changed,
    settle,
    stage,
    sweep,
    write,
)


class CommitError(Exception):
    """A file could not be replaced; the message says which one, and why.

    Attributes:
        left: the files that are replaced, because they could not be restored; the others are unchanged.
    """

    def __init__(self, message: str, left: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.left = left


def commit(changes: Iterable[Change]) -> None:
    """Replace files, all of them or none.

    Args:
        changes: the files with their contents. It is an error if one has changed since it was read.

    Raises:
        CommitError: a file could not be replaced.
    """
    changes = list(changes)
    staged: list[Staged] = []
    done: list[Change] = []
    folders = folders_of(changes)
    with system.handled(system.ENDING, signal.SIG_IGN):
        sweep(folders)
        try:
            for change in changes:
                staged.append(stage(change))
            for change in changes:
                refuse_changed(change)
            for change, (temporary, target) in zip(changes, staged, strict=True):
                system.replace(temporary, target)
                done.append(change)
        except OSError as problem:
            for temporary, _ in staged[len(done) :]:
                with suppress(OSError):
                    os.unlink(temporary)
            left = [change.path for change in done if not _restored(change)]
            raise CommitError(f"{problem.filename}: {problem.strerror or problem}", left) from None
        DONE.extend(change.path for change in done)
        for folder in folders:
            settle(folder)


def _restored(change: Change) -> bool:
    try:
        if change.before is None:
            os.unlink(change.path)
            return True
        write(Change(change.path, change.after, change.before))
    except OSError:
        return False
    return True
