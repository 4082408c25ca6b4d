"""Replace many files together: all of them or none.

Every file is written next to its place first. What remains is to rename them, which no signal but SIGKILL
interrupts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
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
    """The files were not replaced; the message says which one could not be, and why."""


def commit(changes: Iterable[Change]) -> None:
    """Replace files, all of them or none.

    Args:
        changes: the files with their contents. It is an error if one has changed since it was read.

    Raises:
        CommitError: all files are unchanged, unless the message says otherwise.
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
            kept = [change.path for change in done if not _restored(change)]
            left = f"; these files remain rewritten: {', '.join(kept)}" if kept else ""
            raise CommitError(f"{problem.filename}: {problem.strerror or problem}{left}") from None
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
