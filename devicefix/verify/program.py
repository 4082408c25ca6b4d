"""The program under verification: its modules, and their rewritten sources."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from devicefix.config.resolver import Resolver
from devicefix.files import discover as files
from devicefix.files import text
from devicefix.model import Finding, Outcome, Span
from devicefix.runner.coverage import digest
from devicefix.runner.find import Modules
from devicefix.runner.run import check_files
from devicefix.verify.runtime.plan import Plan, Source

_BLANK = re.compile(r"(\s|#[^\r\n]*)+")

Place = tuple[int, int, int, int, int]


class Fixed(NamedTuple):
    """A fix in a rewritten module.

    Attributes:
        line: its line in the user's file, from 1.
        column: its column there.
        code: the code of its rule.
        places: what it made, as in `Source`.
    """

    line: int
    column: int
    code: str
    places: tuple[Place, ...]


class Rewritten(NamedTuple):
    """A rewritten module.

    Attributes:
        path: its path.
        content: its new source.
        fixes: its fixes, in the order of the user's file.
        origins: for each line of the new source, the line of the user's file that it belongs to, from 1.
        before: its source in the user's file.
        fixed: the findings that are fixed.
    """

    path: str
    content: bytes
    fixes: list[Fixed]
    origins: list[int]
    before: bytes
    fixed: Sequence[Finding] = ()

    @classmethod
    def of(cls, outcome: Outcome) -> Rewritten | None:
        """Return the module of a Python file that changes, None for any other file."""
        result = outcome.result
        if result.output is None or not result.origins:
            return None
        source = text.Source(result.output)
        found = zip(result.fixed, result.made, strict=True)
        placed = ((each, _places(source, each, made)) for each, made in found)
        fixes = sorted(Fixed(each.line, each.column, each.code, places) for each, places in placed)
        lines = [line + 1 for line in result.origins]
        return cls(outcome.path, result.output, fixes, lines, outcome.before, result.fixed)


def _places(source: text.Source, finding: Finding, made: Iterable[Span]) -> tuple[Place, ...]:
    found = []
    for start, end in made:
        blank = _BLANK.match(source.text, start, end)
        first = blank.end() if blank else start
        found.append((*_position(source, first), *_position(source, end), finding.column - 1))
    return tuple(found)


def _position(source: text.Source, offset: int) -> tuple[int, int]:
    """Return a position as `ast` counts: lines from 1, columns in UTF-8 bytes."""
    line, column = source.position(offset)
    return line, len(source.text[offset - column + 1 : offset].encode(errors="surrogatepass"))


@dataclass(slots=True)
class Program:
    """A program and its rewritten modules.

    Attributes:
        roots: the folders that hold the program's own modules, as real paths.
        modules: the modules that change, by their real paths.
        rewritten: the source to run instead of each of these modules, as `Plan.rewritten` has it.
        errors: the files that could not be rewritten, and why.
        notebook: the notebook that it runs, as `Plan.notebook` has it; empty for none.
        unchanged: the files that no fix changes.
    """

    roots: tuple[str, ...]
    modules: dict[str, Rewritten] = field(default_factory=dict)
    rewritten: dict[str, Source] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    notebook: dict[str, Any] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)

    @property
    def original(self) -> Program:
        """The program as it is, without rewritten modules."""
        return Program(self.roots, notebook=self.notebook)

    def plan(self, folder: Path, machine: str, **values: Any) -> Plan:
        """Return the plan of a run of this program.

        Args:
            folder: the folder for the run's own files.
            machine: as in `Plan`.
            **values: the other fields of the plan.
        """
        return Plan(str(folder), self.roots, machine, self.rewritten, self.notebook, **values)

    def add(self, module: Rewritten, source: Path) -> None:
        """Add a module.

        Args:
            module: the module.
            source: where to store its new source.
        """
        real = os.path.realpath(module.path)
        source.write_bytes(module.content)
        self.modules[real] = module
        places: list[Sequence[int]] = [place for fix in module.fixes for place in fix.places]
        self.rewritten[real] = Source(str(source), places, module.origins, digest(module.before))


def prepare(
    sources: Iterable[Path], resolver: Resolver, folder: Path, rewritten: Iterable[Rewritten] | None = None
) -> Program:
    """Rewrite a program's modules, and store the new sources in another folder.

    Args:
        sources: the files and folders that hold the modules.
        resolver: the settings to rewrite with.
        folder: where to store the new sources.
        rewritten: the rewritten modules, if they are known already.
    """
    sources = list(sources)
    folders = {os.path.realpath(path if path.is_dir() else path.parent) for path in sources}
    program = Program(tuple(sorted(folders)))
    if rewritten is None:
        # the program cannot import from a folder that cannot be read either
        found = files.find(sources, Modules(resolver), lambda _: None)
        outcomes = check_files(found, resolver.changed(fix=True, quiet=True))
        program.errors += [f"{outcome.path}: {outcome.error}" for outcome in outcomes if outcome.error]
        modules = {outcome.path: Rewritten.of(outcome) for outcome in outcomes if not outcome.error}
        program.unchanged += sorted(path for path, module in modules.items() if module is None)
        rewritten = filter(None, modules.values())
    for module in rewritten:
        program.add(module, folder / f"{len(program.rewritten)}.py")
    return program
