"""The folder of a program, and the Python that runs it: that of its own environment, or else devicefix's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_FOLDERS = (".venv", "venv")
_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
_PATIENCE = 30  # seconds, for a Python that starts from a slow disk


def python_for(folder: Path, root: Path) -> str:
    """Return the Python that a program runs with.

    That is the first one with torch: of the active virtual environment, of one in the program's folder or a
    folder above it, or of the active conda environment. Without one, it is the Python that runs devicefix.

    Args:
        folder: the folder of the script.
        root: the last folder above it to look in.
    """
    for prefix in _prefixes(folder, root):
        if os.path.realpath(prefix) == os.path.realpath(sys.prefix):
            return sys.executable
        python = _python_in(prefix)
        if python is not None and _has_torch(python):
            return python
    return sys.executable


def _prefixes(folder: Path, root: Path) -> Iterator[str]:
    if active := os.environ.get("VIRTUAL_ENV"):
        yield active
    for above in (folder, *folder.parents):
        for name in _FOLDERS:
            if (above / name / "pyvenv.cfg").is_file():
                yield os.fspath(above / name)
        if above == root:
            break
    if active := os.environ.get("CONDA_PREFIX"):
        yield active


def _python_in(prefix: str) -> str | None:
    places = ["Scripts/python.exe", "python.exe"] if os.name == "nt" else ["bin/python"]
    found = (os.path.abspath(os.path.join(prefix, place)) for place in places)
    return next(filter(os.path.isfile, found), None)


def _has_torch(python: str) -> bool:
    try:
        done = subprocess.run(
            [python, "-c", _HAS_TORCH],
            cwd=os.path.dirname(python),  # Python looks for modules in the current folder, too
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
