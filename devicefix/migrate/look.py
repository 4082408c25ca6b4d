"""Describe a project: its size, and how it is started."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from devicefix.files.kinds import NOTEBOOK, is_python
from devicefix.files.origin import is_test
from devicefix.files.system import relative

_MAIN = re.compile(r"^if[ \t]+__name__[ \t]*==[ \t]*['\"]__main__['\"]", re.M)
_TESTING = re.compile(r"^\s*(?:import|from)\s+(?:pytest|unittest)\b", re.M)  # `test_net.py` may be a script


@dataclass(slots=True)
class Look:
    """The description of a project.

    Attributes:
        root: its folder.
        files: the number of Python files.
        notebooks: the notebooks, by their paths below the folder.
        lines: the number of lines of the Python files.
        scripts: the files that are started, by their paths below the folder.
    """

    root: Path
    files: int = 0
    notebooks: list[str] = field(default_factory=list)
    lines: int = 0
    scripts: list[str] = field(default_factory=list)


def look(root: Path, files: Iterable[Path]) -> Look:
    """Return what a project is.

    Args:
        root: its folder.
        files: its files.
    """
    found = Look(root)
    for file in files:
        name = Path(relative(file, root)).as_posix()
        if file.suffix == NOTEBOOK:
            found.notebooks.append(name)
            continue
        if not is_python(file.name):
            continue
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found.files += 1
        found.lines += text.count("\n")
        if _MAIN.search(text) and not (is_test(name) and _TESTING.search(text)):
            found.scripts.append(name)
    return found
