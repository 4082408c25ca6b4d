"""Read regular files of limited size: none takes all memory, and none without an end is read for ever."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from functools import cache

LARGEST = "16M"  # a file
CODE = 8  # the part of a file that may be Python code, whose facts take up to a thousand times as much memory

_CHUNK = 2**16  # bytes to read at least at once
_SPECIAL = {"p": "pipe", "s": "socket", "c": "device", "b": "device"}  # as `stat.filemode` begins
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)
_ABSENT_ON_WINDOWS = (21, 123, 1921)  # not ready, an invalid name, a link that can't be resolved
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)([KMGT]?)(?:I?B)?", re.I)


def read(path: str | os.PathLike[str], most: int = sys.maxsize - 1, advice: str = "") -> bytes:
    """Return the content of a file.

    Args:
        path: the file.
        most: the number of bytes that it may have.
        advice: what to do about a larger one, as the end of the message.

    Raises:
        OSError: it cannot be read, has more bytes, or is a pipe, a socket or a device.
    """
    if what := _special(os.stat(path)):
        raise OSError(errno.EINVAL, f"this is a {what}; copy its content to a regular file", os.fspath(path))
    with open(path, "rb", buffering=0) as file:  # buffering takes twice as long
        expected = os.fstat(file.fileno()).st_size
        chunks, left = [], most + 1 if expected <= most else 0
        while left > 0 and (chunk := file.read(min(left, max(expected + 1, _CHUNK)))):
            chunks.append(chunk)
            left -= len(chunk)
    if left <= 0:
        raise OSError(errno.EFBIG, f"the file is larger than {shown(most)}{advice}", os.fspath(path))
    return b"".join(chunks)


def mode(path: str | os.PathLike[str]) -> int:
    """Return the mode of a file or folder, 0 if there is none.

    Use it instead of `Path.is_file` and the like where an error must not look like a missing file, as it does
    since Python 3.14.

    Raises:
        OSError: it can't be known, as for a name that is too long.
    """
    try:
        return os.stat(path).st_mode
    except OSError as problem:
        absent = problem.errno in _ABSENT or getattr(problem, "winerror", None) in _ABSENT_ON_WINDOWS
        if not absent:
            raise
    return 0


def _special(status: os.stat_result) -> str | None:
    """Return what kind of special file this is, if it is one; the null device counts as an empty file."""
    name = _SPECIAL.get(stat.filemode(status.st_mode)[0])
    return None if name and os.path.samestat(status, os.stat(os.devnull)) else name


@cache
def size(word: str) -> int:
    """Return the number of bytes that a word such as `16M` means.

    Raises:
        ValueError: it is no size.
    """
    match = _SIZE.fullmatch(word.strip())
    if match is None:
        raise ValueError(f"{word!r} is not a size such as 16M")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def shown(size: int) -> str:
    """Return a number of bytes as text, such as `16M`."""
    unit = next(unit for unit in reversed(_UNITS) if size >= _UNITS[unit] or not unit)
    return f"{size / _UNITS[unit]:.4g}{unit or ' bytes'}"
