"""Notebooks under verification: their cells are one module, which a run executes cell by cell.

A run needs no Jupyter and no kernel: it is one process, in which everything else works as in a script.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from devicefix.config.resolver import Resolver
from devicefix.files.notebook.cells import Joined
from devicefix.files.notebook.document import code_cells
from devicefix.files.positions import Lines
from devicefix.runner.run import check_text
from devicefix.verify.places import remember
from devicefix.verify.program import Program, Rewritten
from devicefix.verify.runtime import notebook as runtime


def add(notebook: Path, program: Program, resolver: Resolver, folder: Path) -> None:
    """Add a notebook to a program.

    Args:
        notebook: its path.
        program: the program.
        resolver: the settings to rewrite with.
        folder: where to store the sources.

    Raises:
        NotANotebook: it is not a notebook with Python.
    """
    path = os.path.realpath(notebook)
    cells = code_cells(notebook.read_bytes())
    joined = Joined(text if sound else f"{runtime.CELL}({n})" for n, (text, sound) in cells.items())
    source = folder / "notebook.py"
    source.write_text(joined.text, encoding="utf-8", newline="")
    settings = replace(resolver.of(path), fix=True, quiet=True)
    outcome = check_text(joined.text.encode(), f"{path}.py", settings)
    if outcome.error:
        program.errors.append(f"{notebook}: {outcome.error}")
    program.notebook = {
        "path": path,
        "source": str(source),
        "lines": _lines(joined, list(cells)),
        "commands": joined.magics,
        "cells": {str(number): text for number, (text, _) in cells.items()},
    }
    if (module := Rewritten.of(outcome)) is not None:
        program.add(module._replace(path=path), folder / "rewritten_notebook.py")
    # the report shows the lines of a failure
    remember({runtime.cell_name(path, number): text for number, (text, _) in cells.items()})


def _lines(joined: Joined, numbers: list[int]) -> list[tuple[int, int]]:
    """Return the number of the cell and the line in it for each line of the module."""
    unmasked = joined.unmasked(joined.text)
    cells = [Lines(cell) for cell in unmasked.cells]
    found = []
    start = 0
    for line in joined.text.splitlines(keepends=True):
        index, offset = unmasked.place(start)
        found.append((numbers[index], cells[index].position(offset)[0]))
        start += len(line)
    return found


def in_cells(location: Any, program: Program) -> Any:
    """Return a line of the notebook's module as one in a cell; any other location stays as it is."""
    if not program.notebook or location.file != program.notebook["path"]:
        return location
    number, line = program.notebook["lines"][location.line - 1]
    return replace(location, file=runtime.cell_name(location.file, number), line=line)
