"""Replace files atomically: a reader sees the old bytes or the new ones."""

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

from devicefix.files import signals, system

_PREFIX, _SUFFIX = ".devicefix-", ".tmp"
_LEFTOVER = re.compile(rf"{re.escape(_PREFIX)}(\d+)-\w+{re.escape(_SUFFIX)}")
DONE: list[str] = []  # the files that this process has written


class Change(NamedTuple):
    """A file with its content before and after; `before` is None for a new file."""

    path: str
    before: bytes | None
    after: bytes


class Staged(NamedTuple):
    """A temporary file that is ready to replace another with `system.replace`."""

    temporary: str
    target: Path


def write_each(changes: Iterable[Change], onerror: Callable[[str, OSError], None]) -> None:
    """Write files, each atomically.

    Args:
        changes: the files and their contents.
        onerror: called for each file that can't be written; it is unchanged.
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
    """Replace a file's content atomically.

    Raises:
        OSError: the file or its folder can't be written, or the file has changed since it was read; it is
            unchanged.
    """
    with signals.held():
        temporary, target = stage(change)
        try:
            refuse_changed(change)  # again: writing and syncing may have taken long
            system.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
        DONE.append(change.path)


def put(path: str, data: bytes) -> None:
    """Write a file, new or not; a pipe or device is written to directly.

    Raises:
        OSError: the file or its folder can't be written, or it is a link to nothing; an existing file is
            unchanged.
    """
    refuse_dangling(path)
    target = Path(path)
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    write(Change(path, target.read_bytes() if target.exists() else None, data))


def stage(change: Change) -> Staged:
    """Write a file's new content to a temporary file next to it.

    Symbolic links are followed. The temporary file gets the mode, owner and extended attributes of the file,
    access control lists included; for a new file, it gets the usual mode.

    Raises:
        OSError: the file or its folder can't be written, or the file has changed since it was read; the
            temporary file is removed.
    """
    status = None
    if change.before is None:
        target = Path(change.path).parent.resolve(strict=True) / os.path.basename(change.path)
    else:
        target = Path(change.path).resolve(strict=True)
        status = target.stat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "this is not a regular file", change.path)
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), change.path)
    refuse_changed(change)
    handle, name = tempfile.mkstemp(_SUFFIX, f"{_PREFIX}{os.getpid()}-", target.parent)
    try:
        with os.fdopen(handle, "wb") as temporary:
            temporary.write(change.after)
            temporary.flush()
            if status is not None:
                _be_like(target, status, temporary.fileno())
            elif hasattr(os, "fchmod"):
                os.fchmod(temporary.fileno(), 0o666 & ~_umask())
            os.fsync(temporary.fileno())
    except BaseException:
        os.unlink(name)
        raise
    return Staged(name, target)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def refuse_dangling(path: str) -> None:
    """Refuse a symbolic link whose target does not exist, instead of creating the target.

    Raises:
        OSError: the path is one.
    """
    if os.path.islink(path) and not os.path.exists(path):
        raise FileNotFoundError(errno.ENOENT, "this is a symbolic link whose target does not exist", path)


def refuse_changed(change: Change) -> None:
    """Refuse to overwrite a file that has changed since it was read.

    Raises:
        OSError: its content differs.
    """
    if change.before is None:
        if os.path.lexists(change.path):
            raise FileExistsError(errno.EEXIST, "exists already", change.path)
        return
    if Path(change.path).read_bytes() != change.before:
        raise OSError(errno.EBUSY, "changed in the meantime", change.path)


def other_names(path: str) -> int:
    """Return the number of other hard links to a file; they keep the old content when it is replaced."""
    try:
        return os.stat(path).st_nlink - 1
    except OSError:
        return 0


def folders_of(changes: Iterable[Change]) -> list[str]:
    """Return the folders whose entries change, each once."""
    return sorted({os.path.dirname(os.path.realpath(change.path)) for change in changes})


def sweep(folders: Iterable[str]) -> None:
    """Remove the temporary files of runs that were killed while they wrote."""
    for folder in () if system.WINDOWS else folders:  # there, `os.kill` ends the process that it asks for
        with suppress(OSError):
            for name in os.listdir(folder):
                left = _LEFTOVER.fullmatch(name)
                if left and not _runs(int(left[1])):
                    with suppress(OSError):
                        os.unlink(os.path.join(folder, name))


def settle(folder: str) -> None:
    """Sync a folder's entries to disk, where the system supports it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _be_like(target: Path, status: os.stat_result, handle: int) -> None:
    """Copy owner, mode and extended attributes to a file, in this order: setting one resets the next."""
    if hasattr(os, "fchown"):
        own = os.fstat(handle)
        if (status.st_uid, status.st_gid) != (own.st_uid, own.st_gid):
            try:
                os.fchown(handle, status.st_uid, status.st_gid)
            except PermissionError as problem:
                why = "the file's owner could not be preserved"
                raise PermissionError(problem.errno, why, str(target)) from None
        os.fchmod(handle, stat.S_IMODE(status.st_mode))
    if hasattr(os, "listxattr"):
        for name in _extended_attributes(target):
            try:
                os.setxattr(handle, name, os.getxattr(target, name))
            except OSError:
                if not name.startswith(("security.", "trusted.")):  # the system sets these itself
                    raise


def _extended_attributes(target: Path) -> list[str]:
    try:
        return os.listxattr(target)
    except OSError:  # a file system without them
        return []


def _runs(process: int) -> bool:
    """Return whether there is a process with this id."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return process > 0
