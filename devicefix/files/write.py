"""Replaces files so that whoever reads one, at whatever moment, sees the old bytes or the new ones."""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PREFIX, _SUFFIX = ".devicefix-", ".tmp"
_LEFTOVER = re.compile(rf"{re.escape(_PREFIX)}(\d+)-\w+{re.escape(_SUFFIX)}")


class Change(NamedTuple):
    """A file, its content, and what it is to become."""

    path: str
    before: bytes
    after: bytes


class Staged(NamedTuple):
    """A file that is ready to take the place of another by `os.replace`."""

    temporary: str
    target: Path


def write_each(changes: Iterable[Change], onerror: Callable[[str, OSError], None]) -> None:
    """Write files, each by itself.

    Args:
        changes: what to write.
        onerror: called for each file that can't be written, which is as it was.
    """
    changes = list(changes)
    folders = folders_of(changes)
    sweep(folders)
    for change in changes:
        try:
            write(change)
        except OSError as problem:
            onerror(change.path, problem)
    for folder in folders:
        settle(folder)


def write(change: Change) -> None:
    """Replace a file's content at once.

    Raises:
        OSError: the file or its folder can't be written, or the file has been changed by someone else;
            it is as it was.
    """
    temporary, target = stage(change)
    try:
        refuse_changed(change)  # once more: writing and waiting for the disk may have taken long
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def put(path: str, data: bytes) -> None:
    """Write a file, whether there is one or not; what is no regular file, such as a pipe, is written to.

    Raises:
        OSError: the file or its folder can't be written; a file that was there is as it was.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    new = not target.is_symlink()
    if new:
        try:
            target.touch(exist_ok=False)  # so that it gets the mode that new files get here
        except FileExistsError:
            new = False
    try:
        write(Change(path, target.read_bytes(), data))
    except BaseException:
        if new:
            target.unlink()
        raise


def stage(change: Change) -> Staged:
    """Write what is to become a file's content beside it.

    Symbolic links are followed; mode, owner and extended attributes (and so access control lists) are
    those of the file.

    Raises:
        OSError: the file or its folder can't be written, or the file has been changed by someone else;
            nothing is left behind.
    """
    target = Path(change.path).resolve(strict=True)
    status = target.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", change.path)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), change.path)
    refuse_changed(change)
    handle, name = tempfile.mkstemp(_SUFFIX, f"{_PREFIX}{os.getpid()}-", target.parent)
    try:
        with os.fdopen(handle, "wb") as temporary:
            temporary.write(change.after)
            temporary.flush()
            _be_like(target, status, temporary.fileno())
            os.fsync(temporary.fileno())
    except BaseException:
        os.unlink(name)
        raise
    return Staged(name, target)


def refuse_changed(change: Change) -> None:
    """See to it that nobody's work is overwritten.

    Raises:
        OSError: the file holds something else than it did.
    """
    if Path(change.path).read_bytes() != change.before:
        raise OSError(errno.EBUSY, "it has been changed in the meantime", change.path)


def other_names(path: str) -> int:
    """How many other names (hard links) a file has: they keep the old content when it is replaced."""
    try:
        return os.stat(path).st_nlink - 1
    except OSError:
        return 0


def folders_of(changes: Iterable[Change]) -> list[str]:
    """The folders whose entries change, each once."""
    return sorted({os.path.dirname(os.path.realpath(change.path)) for change in changes})


def sweep(folders: Iterable[str]) -> None:
    """Remove what a run has left in folders that was killed as it wrote."""
    for folder in folders if os.name == "posix" else ():  # elsewhere there is no asking who still runs
        with suppress(OSError):
            for name in os.listdir(folder):
                left = _LEFTOVER.fullmatch(name)
                if left and not _runs(int(left[1])):
                    with suppress(OSError):
                        os.unlink(os.path.join(folder, name))


def settle(folder: str) -> None:
    """Wait until a folder's entries are on the disk, where the system has a way to."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _be_like(target: Path, status: os.stat_result, handle: int) -> None:
    """Give a file the owner, mode and extended attributes of another, in this order: each resets the next."""
    if hasattr(os, "fchown"):
        own = os.fstat(handle)
        if (status.st_uid, status.st_gid) != (own.st_uid, own.st_gid):
            try:
                os.fchown(handle, status.st_uid, status.st_gid)
            except PermissionError as problem:
                raise PermissionError(problem.errno, "its owner could not be kept", str(target)) from None
        os.fchmod(handle, stat.S_IMODE(status.st_mode))
    if hasattr(os, "listxattr"):
        for name in _extended_attributes(target):
            try:
                os.setxattr(handle, name, os.getxattr(target, name))
            except OSError:
                if not name.startswith(("security.", "trusted.")):  # the system's, which gives its own
                    raise


def _extended_attributes(target: Path) -> list[str]:
    try:
        return os.listxattr(target)
    except OSError:  # a file system without them
        return []


def _runs(process: int) -> bool:
    """Whether there is a process with this number."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return process > 0
