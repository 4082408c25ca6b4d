"""Replace many files together: all of them or none, even if the process that asks for it is killed.

A separate process replaces the files; no signal to the first one reaches it. If the separate process is
killed, the first one completes its work.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from devicefix.config.printable import printable
from devicefix.files import system
from devicefix.files.write import Change, Staged, folders_of, refuse_changed, settle, stage, sweep, write

_START = "import sys; sys.path[:] = sys.argv[2:]; from devicefix.files.commit import main; main()"
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")  # of which each system has some


class CommitError(Exception):
    """The files were not replaced; the message says which one could not be, and why."""


def commit(changes: Iterable[Change]) -> None:
    """Replace files, all of them or none.

    Args:
        changes: the files with their contents. It is an error if one has changed since it was read.

    Raises:
        CommitError: all files are unchanged, unless the message says otherwise.
    """
    changes = [Change(os.path.abspath(change.path), change.before, change.after) for change in changes]
    with _uninterrupted():
        done = subprocess.run(
            # Isolated, since the current folder may contain a json.py. The name shows in process lists.
            [sys.executable, "-I", "-c", _START, __name__, *filter(None, sys.path)],
            input=pickle.dumps(changes),
            stdout=subprocess.PIPE,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # on Windows
            check=False,
        )
    said = _said(done.stdout)
    if "error" not in said:
        if "staged" not in said:
            sweep(folders_of(changes))
            raise CommitError(f"the process that writes the files ended with status {done.returncode}")
        said["error"] = _completed([Staged(temporary, Path(target)) for temporary, target in said["staged"]])
    if said["error"]:
        raise CommitError(said["error"])


def _said(output: bytes) -> dict[str, Any]:
    """Return what the separate process has said: its staged files, and the error at its end."""
    said: dict[str, Any] = {}
    for line in output.splitlines():
        with suppress(ValueError):  # it was killed while it wrote
            said |= json.loads(line)
    return said


def _completed(staged: Iterable[Staged]) -> str:
    """Replace the files that a killed process has not replaced, and return the error, or an empty one."""
    for temporary, target in staged:
        try:
            if os.path.lexists(temporary):
                system.replace(temporary, target)
        except OSError as problem:
            return f"{target}: {problem.strerror or problem}; some files are rewritten"
    return ""


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C until the files are replaced, which takes little time."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # only the main thread is interrupted
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def replace_all(changes: list[Change], say: Callable[[list[Staged]], None] = lambda _: None) -> str:
    """Replace all files and return "", or replace none and return the reason.

    Args:
        changes: the files with their contents.
        say: called with the files to replace and what to replace them with, before the first is replaced.
    """
    staged: list[Staged] = []
    done: list[Change] = []
    folders = folders_of(changes)
    sweep(folders)
    try:
        for change in changes:
            staged.append(stage(change))
        for change in changes:
            refuse_changed(change)
        say(staged)
        for change, (temporary, target) in zip(changes, staged, strict=True):
            system.replace(temporary, target)
            done.append(change)
    except OSError as problem:
        for temporary, _ in staged[len(done) :]:
            with suppress(OSError):
                os.unlink(temporary)
        kept = [change.path for change in done if not _restored(change)]
        left = f"; rewritten, because they could not be restored: {', '.join(kept)}" if kept else ""
        return f"{problem.filename}: {problem.strerror or problem}{left}"
    for folder in folders:
        settle(folder)
    return ""


def _restored(change: Change) -> bool:
    try:
        if change.before is None:
            os.unlink(change.path)
            return True
        write(Change(change.path, change.after, change.before))
    except OSError:
        return False
    return True


def main() -> None:
    """Replace the files that the standard input lists, and print the error, or an empty one."""
    for name in _SIGNALS:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    try:
        changes = pickle.load(sys.stdin.buffer)
    except (EOFError, pickle.UnpicklingError):  # the first process ended before it had sent everything
        return
    error = replace_all(changes, _say_staged)
    try:
        _say(error=error)
    except OSError:  # the first process has ended, and can't say it
        done = printable(error) or f"all {len(changes)} files are rewritten"
        print(f"devicefix: {done}", file=sys.stderr)


def _say_staged(staged: list[Staged]) -> None:
    with suppress(OSError):  # the first process has ended
        _say(staged=[[temporary, os.fspath(target)] for temporary, target in staged])


def _say(**what: Any) -> None:
    line = json.dumps(what).encode() + b"\n"
    while line:
        line = line[os.write(sys.stdout.fileno(), line) :]
