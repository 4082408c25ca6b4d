"""Replaces many files together: all of them or none, whatever becomes of the process that asks for it.

A process of its own does it, which no signal to the other one reaches, also not one that kills.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from devicefix.files.write import Change, Staged, folders_of, refuse_changed, settle, stage, sweep, write

_START = "import sys; sys.path[:] = sys.argv[2:]; from devicefix.files.commit import main; main()"
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class CommitError(Exception):
    """The files were not replaced; the message says which one could not be, and why."""


def commit(changes: Iterable[Change]) -> None:
    """Replace files, all of them or none.

    Args:
        changes: what to replace, and by what. A file that holds something else by now is an error.

    Raises:
        CommitError: all files are as they were, unless the message says otherwise.
    """
    changes = [Change(os.path.abspath(change.path), change.before, change.after) for change in changes]
    with _uninterrupted():
        done = subprocess.run(
            # Isolated, for the current folder may hold a json.py; the name is there for who lists processes.
            [sys.executable, "-I", "-c", _START, __name__, *filter(None, sys.path)],
            input=pickle.dumps(changes),
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
    if done.returncode or not done.stdout:
        raise CommitError(f"the process that writes the files ended with {done.returncode}")
    error = json.loads(done.stdout)
    if error:
        raise CommitError(error)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Whoever presses Ctrl-C must wait until it is settled, which takes no time."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not in the main thread, which is the one that is interrupted
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def replace_all(changes: list[Change]) -> str:
    """Replace files; all of them, or none and the reason is returned."""
    staged: list[Staged] = []
    done: list[Change] = []
    folders = folders_of(changes)
    sweep(folders)
    try:
        for change in changes:
            staged.append(stage(change))
        for change in changes:
            refuse_changed(change)
        for change, (temporary, target) in zip(changes, staged, strict=True):
            os.replace(temporary, target)
            done.append(change)
    except OSError as problem:
        for temporary, _ in staged[len(done) :]:
            with suppress(OSError):
                os.unlink(temporary)
        kept = [change.path for change in done if not _restored(change)]
        left = (
            f"; rewritten all the same, since they could not be restored: {', '.join(kept)}" if kept else ""
        )
        return f"{problem.filename}: {problem.strerror or problem}{left}"
    for folder in folders:
        settle(folder)
    return ""


def _restored(change: Change) -> bool:
    try:
        write(Change(change.path, change.after, change.before))
    except OSError:
        return False
    return True


def main() -> None:
    """Replace the files that come through the standard input; the answer is the error, or empty."""
    for name in _SIGNALS:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    parent = os.getppid()
    try:
        changes = pickle.load(sys.stdin.buffer)
    except (EOFError, pickle.UnpicklingError):  # who asked was ended before all was said
        return
    error = replace_all(changes)
    if os.getppid() != parent:
        print(f"devicefix: {error or f'all {len(changes)} files are rewritten'}", file=sys.stderr)
    with suppress(OSError):
        print(json.dumps(error), flush=True)
