"""Find the version of torch that a project pins."""

from __future__ import annotations

import re
from pathlib import Path

from devicefix.config.sizes import read

MOST_BYTES, MOST_FILES = 2**20, 50  # of files with requirements

NAMES = ("requirements*.txt", "pyproject.toml", "setup.py", "setup.cfg", "environment*.y*ml", "Pipfile")
# `torch==2.0.1`, `torch ~= 2.0.1` and conda's `pytorch=2.0.1`: versions that allow no newer release.
_PIN = re.compile(
    r"""^[ \t"'\[,-]*(?:torch|(?:(?:conda-forge|pytorch)::)?pytorch)"""
    r"""\s{0,9}(?:"?\s{0,9}=\s{0,9}["'])?\s{0,9}"""
    r"""(?:={1,3}\s{0,9}(\d{1,9})\.(\d{1,9})|~=\s{0,9}(\d{1,9})\.(\d{1,9})\.\d)""",
    re.MULTILINE,
)


def pinned_torch(start: Path) -> tuple[int, int] | None:
    """Return the version of torch that the files of a project pin; None if there is none, or several differ.

    Args:
        start: a folder of the project. Those above it are searched, too, up to one with such files or `.git`.
    """
    for folder in (start.absolute(), *start.absolute().parents):
        files = sorted(file for name in NAMES for file in folder.glob(name) if file.is_file())[:MOST_FILES]
        found = {version for file in files for version in pins(_text(file))}
        if found or files or (folder / ".git").exists():
            return found.pop() if len(found) == 1 else None
    return None


def pins(text: str) -> set[tuple[int, int]]:
    """Return the versions of torch that a file's text pins."""
    return {(int(major or other), int(minor or rest)) for major, minor, other, rest in _PIN.findall(text)}


def _text(file: Path) -> str:
    try:
        return read(file, MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
