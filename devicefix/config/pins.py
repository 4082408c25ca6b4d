"""Find the version of torch that a project pins."""

from __future__ import annotations

import os
import re
from pathlib import Path

from devicefix.config.sizes import read

MOST_BYTES, MOST_FILES = 2**20, 50  # of files with requirements

_NAMES = re.compile(r"requirements.*\.txt|pyproject\.toml|setup\.(py|cfg)|environment.*\.y.*ml|Pipfile")
# `torch==2.0.1`, `torch ~= 2.0.1` and conda's `pytorch=2.0.1`: versions that allow no newer release.
_PIN = re.compile(
    r"""^[ \t"'\[,-]*(?:torch|(?:(?:conda-forge|pytorch)::)?pytorch)"""
    r"""\s{0,9}(?:"?\s{0,9}=\s{0,9}["'])?\s{0,9}"""
    r"""(?:={1,3}\s{0,9}(\d{1,9})\.(\d{1,9})|~=\s{0,9}(\d{1,9})\.(\d{1,9})\.\d)""",
    re.MULTILINE,
)


def pins_in(folder: str) -> frozenset[tuple[int, int]] | None:
    """Return the versions of torch that the files of a project in a folder pin.

    Args:
        folder: the folder.

    Returns:
        The versions; None if the folder has no such files and no `.git`, so that it is a part of a project.
    """
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    files = [Path(folder, name) for name in sorted(names) if _NAMES.fullmatch(name)]
    files = [file for file in files if file.is_file()][:MOST_FILES]
    if files or ".git" in names:
        return frozenset(version for file in files for version in pins(_text(file)))
    return None


def pins(text: str) -> set[tuple[int, int]]:
    """Return the versions of torch that a file's text pins."""
    return {(int(major or other), int(minor or rest)) for major, minor, other, rest in _PIN.findall(text)}


def _text(file: Path) -> str:
    try:
        return read(file, MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
