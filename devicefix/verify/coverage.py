"""The runs that are added to a coverage file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from devicefix.runner import coverage
from devicefix.runner.baseline import relative
from devicefix.runner.coverage import Entry, digest
from devicefix.verify.program import Program
from devicefix.verify.verdict import Run


@dataclass(frozen=True, slots=True)
class Total:
    """The content of a coverage file after a run was added.

    Attributes:
        file: the file.
        ran: the number of lines with fixes that ran in any run.
        lines: the number of lines with fixes.
        modules: the number of modules with fixes.
        dropped: the modules whose older runs were dropped, since they or their fixes have changed.
    """

    file: str
    ran: int
    lines: int
    modules: int
    dropped: list[str] = field(default_factory=list)


def add(file: Path, program: Program, run: Run) -> Total:
    """Add a run to a coverage file. Notebooks are not added.

    Args:
        file: the coverage file, which is created if there is none.
        program: the program that was run.
        run: what ran of it.

    Raises:
        ConfigError: the file exists and is no coverage file.
        OSError: the file cannot be written.
    """
    folder = Path(os.path.realpath(file.parent))
    entries = {}
    for module in run.modules:
        if module.file != program.notebook.get("path"):
            made = program.modules[module.file]
            entry = Entry(digest(made.before), digest(made.content), module.fixes)
            entries[relative(module.file, folder)] = entry
    unchanged = {relative(os.path.realpath(path), folder) for path in program.unchanged}
    added = coverage.add(file, entries, unchanged)
    lines = [ran for entry in added.entries.values() for ran in entry.lines.values()]
    return Total(str(file), sum(lines), len(lines), len(added.entries), added.dropped)
