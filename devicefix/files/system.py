"""Hide the differences between Linux, macOS and Windows: replacing files, junctions, drives and signals."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType

WINDOWS = os.name == "nt"
ENDING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")  # the signals that ask a process to end
_PATIENCE = 1.0  # seconds that another program may keep a file open
_PAUSE = 0.02
_JUNCTION = 0xA0000003  # IO_REPARSE_TAG_MOUNT_POINT


def replace(source: str, target: str | os.PathLike[str]) -> None:
    """Rename a file over another one, as `os.replace`.

    On Windows that fails while another program, such as a virus scanner or an indexer, has one of them open.

    Raises:
        OSError: the file can't be replaced.
    """
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            os.replace(source, target)
        except PermissionError:
            if not WINDOWS or time.monotonic() > end:
                raise
            time.sleep(_PAUSE)
        else:
            return


def is_junction(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a junction: a link to a folder on Windows, which is no symbolic link."""
    return WINDOWS and getattr(os.lstat(path), "st_reparse_tag", 0) == _JUNCTION


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder and no link to one."""
    try:
        return entry.is_dir(follow_symlinks=False) and not is_junction(entry)
    except OSError:
        return False


def make_link(target: str, place: str | os.PathLike[str], original: str) -> None:
    """Make a symbolic link; where Windows doesn't allow that, a junction to a folder or a copy of a file.

    Args:
        target: what the link leads to, as it names it.
        place: the path of the link.
        original: the target, or another link to it.

    Raises:
        OSError: the link can't be made.
    """
    try:
        os.symlink(target, place)
    except OSError:
        if not WINDOWS:
            raise
        if os.path.isdir(original):
            import_module("_winapi").CreateJunction(os.path.realpath(original), os.fspath(place))
        elif os.path.isfile(original):
            shutil.copy2(original, place)


def relative(path: str | os.PathLike[str], start: str | os.PathLike[str] = os.curdir) -> str:
    """Return a path relative to a folder, as `os.path.relpath`; on another drive, the absolute path."""
    try:
        return os.path.relpath(path, start)
    except ValueError:
        return os.path.abspath(path)


def common_folders(paths: Iterable[str]) -> list[str]:
    """Return the deepest folder that holds all files, one for each drive.

    Args:
        paths: the files, absolute or relative to the current folder.
    """
    drives: dict[str, list[str]] = {}
    for path in map(os.path.abspath, paths):
        drives.setdefault(os.path.normcase(os.path.splitdrive(path)[0]), []).append(os.path.dirname(path))
    return [os.path.commonpath(folders) for folders in drives.values()]


@contextmanager
def handled(
    names: Iterable[str], handler: Callable[[int, FrameType | None], None] | signal.Handlers
) -> Iterator[None]:
    """Handle signals in a block of the main thread, except those that this process ignores.

    Args:
        names: the names of the signals, of which each system has some.
        handler: the handler.
    """
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [getattr(signal, name) for name in names if is_main and hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    caught = [number for number in numbers if before[number] not in (signal.SIG_IGN, None)]
    for number in caught:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, before[number])
