"""Notebooks under verification: their cells are one module, which a run executes cell by cell.

A run needs no Jupyter and no kernel: it is one process, in which everything else works as in a script.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from devicefix.config.evidence import Evidence
from devicefix.config.resolver import Resolver
from devicefix.files.notebook.cells import Joined, cell_lines
from devicefix.files.notebook.document import Notebook, code_cells
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
    lines = cell_lines(joined, list(cells))
    settings = replace(resolver.of(path), fix=True, quiet=True)
    settings = replace(settings, evidence=_evidence(settings.evidence, notebook, lines))
    outcome = check_text(joined.text.encode(), f"{path}.py", settings)
    if outcome.error:
        program.errors.append(f"{notebook}: {outcome.error}")
    program.notebook = {
        "path": path,
        "source": str(source),
        "lines": lines,
        "commands": joined.magics,
        "cells": {str(number): text for number, (text, _) in cells.items()},
    }
    if (module := Rewritten.of(outcome)) is not None:
        program.add(module._replace(path=path), folder / "rewritten_notebook.py")
    # the report shows the lines of a failure
    remember({runtime.cell_name(path, number): text for number, (text, _) in cells.items()})


def _evidence(evidence: Evidence, notebook: Path, lines: Sequence[tuple[int, int]]) -> Evidence:
    """Return the evidence on a notebook for the module that runs, which has all cells, also invalid ones."""
    if not evidence:
        return evidence
    here = {place: number for number, place in enumerate(lines, 1)}
    known = Notebook(notebook.read_bytes()).lines
    moved = {number: here[place] for number, place in enumerate(known, 1) if place in here}
    return evidence.placed(os.path.realpath(notebook), f"{os.path.realpath(notebook)}.py", moved)


def in_cells(location: Any, program: Program) -> Any:
    """Return a line of the notebook's module as one in a cell; any other location stays as it is."""
    if not program.notebook or location.file != program.notebook["path"]:
        return location
    number, line = program.notebook["lines"][location.line - 1]
    return replace(location, file=runtime.cell_name(location.file, number), line=line)
