"""The lines of notebooks: evidence has those of the module that joins the cells, reports those of a cell."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from devicefix.files.notebook.document import Notebook
from devicefix.model import Finding
from devicefix.verify.runtime.notebook import CELL_NAME
from devicefix.verify.verdict import Location


def lines_of(path: str, finding: Finding) -> tuple[int, int]:
    """Return the first and last line of a finding in its module.

    Args:
        path: the file.
        finding: the finding, at its position in the file as it is on disk.
    """
    if finding.cell is None:
        return finding.line, finding.end_line
    known = _module_lines(os.path.realpath(path))
    first = known.get((finding.cell, finding.line), 0)
    return first, known.get((finding.cell, finding.end_line), first)


def line_of(at: Location) -> tuple[str, int]:
    """Return the real path of the file of a location, and its line in the module."""
    found = CELL_NAME.fullmatch(at.file)
    if found is None:
        return os.path.realpath(at.file), at.line
    real = os.path.realpath(found["path"])
    return real, _module_lines(real).get((int(found["cell"]), at.line), 0)


@lru_cache(maxsize=64)
def _module_lines(path: str) -> dict[tuple[int, int], int]:
    """Return the line of the module for each cell and line in it."""
    try:
        lines = Notebook(Path(path).read_bytes()).lines
    except OSError:
        return {}
    return {place: number for number, place in enumerate(lines, 1)}
