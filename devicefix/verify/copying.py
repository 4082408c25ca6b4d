"""Copies of folders, which share their content with the original where the file system can."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

from devicefix.files.system import is_folder, is_junction, make_link

_CLONE = 0x40049409  # FICLONE of Linux: the copy shares the blocks until one of both is changed
_LEFT_OUT = frozenset({"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
_LINKED = frozenset({"node_modules", ".tox", ".nox"})  # installed, and large: programs read them only


def place(original: Path) -> str:
    """Return the folder to make copies in: the one for temporary files, or a better one.

    Content can be shared within a file system only. If the original is on one that can share it, and
    temporary files are not, copies are made beside the original.

    Args:
        original: the folder to copy.
    """
    temporary = tempfile.gettempdir()
    files = (entry.path for entry in os.scandir(original) if _has_content(entry))
    if sample := next(files, None):
        for folder in (temporary, os.fspath(original.parent)):
            if _shares(sample, folder):
                return folder
    return temporary


def _shares(sample: str, folder: str) -> bool:
    try:
        with open(sample, "rb") as old, tempfile.TemporaryFile(dir=folder) as new:
            return clone(old.fileno(), new.fileno())
    except OSError:  # no files can be made there
        return False


def _has_content(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) and entry.stat().st_size > 0


def clone(old: int, new: int) -> bool:
    """Let a new file share the content of an old one, until one of both is changed.

    Args:
        old: the descriptor of the old file.
        new: that of the new file, which is empty.

    Returns:
        Whether the file system can do that.
    """
    if sys.platform != "linux":
        return False
    from fcntl import ioctl

    try:
        ioctl(new, _CLONE, old)
    except OSError:
        return False
    return True


def is_small(folder: Path, files: int, size: int) -> bool:
    """Return whether a copy of a folder takes little.

    Args:
        folder: the folder.
        files: the largest number of files.
        size: the largest number of bytes, of all files together.
    """
    folders = [os.fspath(folder)]
    while folders and files >= 0 and size >= 0:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                files -= 1
                size -= entry.stat(follow_symlinks=False).st_size
            elif is_folder(entry) and entry.name not in _LEFT_OUT:
                if not (_is_installed(entry) or _is_object_store(Path(entry.path).parent)):
                    folders.append(entry.path)
    return files >= 0 and size >= 0


def copy_folder(original: Path, copy: Path, without: str = "") -> None:
    """Copy a folder, as far as a program that runs in the copy can read it.

    Links stay links. Pipes, sockets and devices have no content, and files that vanish meanwhile or that
    cannot be read are of no use to the program. Caches of tools are left out. Virtual environments and the
    objects of git are not copied either: the copy has links to them.

    Args:
        original: the folder to copy.
        copy: the copy, which must not exist.
        without: the folder to leave out; by default the one that the copy is in.

    Raises:
        OSError: the disk is full.
    """
    without = without or os.fspath(copy.parent)
    copy.mkdir()
    try:
        entries = sorted(os.scandir(original), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        try:
            if entry.path != without:
                _copy(entry, copy / entry.name, without)
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ESTALE):
                raise
    if _is_object_store(original):
        (copy / "info").mkdir(exist_ok=True)
        (copy / "info" / "alternates").write_text(f"{original.as_posix()}\n", encoding="utf-8")
    shutil.copystat(original, copy)
    copy.chmod(stat.S_IMODE(copy.stat().st_mode) | stat.S_IRWXU)  # to remove it later


def _copy(entry: os.DirEntry[str], copy: Path, without: str) -> None:
    mode = entry.stat(follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode) or is_junction(entry):
        make_link(os.readlink(entry.path), copy, entry.path)
    elif stat.S_ISREG(mode):
        with open(entry.path, "rb") as old, open(copy, "wb") as new:
            shared = clone(old.fileno(), new.fileno())
        (shutil.copystat if shared else shutil.copy2)(entry.path, copy)
    elif stat.S_ISDIR(mode) and entry.name not in _LEFT_OUT:
        if _is_installed(entry):
            make_link(entry.path, copy, entry.path)
        elif not _is_object_store(Path(entry.path).parent):
            copy_folder(Path(entry.path), copy, without)


def _is_installed(entry: os.DirEntry[str]) -> bool:
    """Return whether a folder is an environment or installed packages."""
    inside = (os.path.join(entry.path, name) for name in ("pyvenv.cfg", "conda-meta"))
    return entry.name in _LINKED or any(map(os.path.exists, inside))


def _is_object_store(folder: Path) -> bool:
    """Return whether git keeps objects in a folder. It adds files there, and never changes one."""
    return folder.name == "objects" and (folder / "pack").is_dir() and (folder.parent / "refs").is_dir()
