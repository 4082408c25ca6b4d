"""The program under verification: its modules, and their rewritten sources."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from devicefix.config.resolver import Resolver
from devicefix.files import discover as files
from devicefix.files.text import Source
from devicefix.model import Finding, Outcome, Span
from devicefix.runner.coverage import digest
from devicefix.runner.find import Modules
from devicefix.runner.run import Sources, read_sources
from devicefix.verify.runtime.plan import ANSWERED, Plan

_AT_ONCE = 50  # modules; for so few the run would not start much earlier

_BLANK = re.compile(r"(\s|#[^\r\n]*)+")

Place = tuple[int, int, int, int, int]


class Fixed(NamedTuple):
    """A fix in a rewritten module.

    Attributes:
        line: its line in the user's file, from 1.
        column: its column there.
        code: the code of its rule.
        places: what it made, as `Plan.places` has it.
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
        source = Source(result.output)
        found = zip(result.fixed, result.made, strict=True)
        fixes = sorted(
            Fixed(finding.line, finding.column, finding.code, _places(source, finding, made))
            for finding, made in found
        )
        lines = [line + 1 for line in result.origins]
        return cls(outcome.path, result.output, fixes, lines, outcome.before, result.fixed)


def _places(source: Source, finding: Finding, made: Iterable[Span]) -> tuple[Place, ...]:
    found = []
    for start, end in made:
        blank = _BLANK.match(source.text, start, end)
        first = blank.end() if blank else start
        found.append((*_position(source, first), *_position(source, end), finding.column - 1))
    return tuple(found)


def _position(source: Source, offset: int) -> tuple[int, int]:
    """Return a position as `ast` counts: lines from 1, columns in UTF-8 bytes."""
    line, column = source.position(offset)
    return line, len(source.text[offset - column + 1 : offset].encode(errors="surrogatepass"))


@dataclass(slots=True)
class Program:
    """A program and its rewritten modules.

    Attributes:
        roots: the folders that hold the program's own modules, as real paths.
        rewritten: the path of the rewritten source of each module that changes, by the module's real path.
        places: what the fixes made in each of these modules, as `Plan.places` has it.
        origins: the user's line of each new line in each of these modules.
        errors: the files that could not be rewritten, and why.
        notebook: the notebook that it runs, as `Plan.notebook` has it; empty for none.
        waiting: modules that are rewritten if the program imports them: the name of the answer for each of
            them, by its real path. See `OnDemand`.
        answers: the folder for these answers.
        answer: rewrites the modules that the program has asked for.
        rest: rewrites the modules that are still waiting, after the run.
        fixes: the fixes in each module that changes.
        digests: the digests of each of these modules before and after.
        unchanged: the files that no fix changes.
        fixed: the findings that are fixed in each of these modules.
    """

    roots: tuple[str, ...]
    rewritten: dict[str, str] = field(default_factory=dict)
    places: dict[str, list[Sequence[int]]] = field(default_factory=dict)
    origins: dict[str, list[int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    notebook: dict[str, Any] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    answers: str = ""
    answer: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    rest: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    fixes: dict[str, list[Fixed]] = field(default_factory=dict)
    digests: dict[str, tuple[str, str]] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)
    fixed: dict[str, Sequence[Finding]] = field(default_factory=dict)

    def plan(self, folder: Path, machine: str, **values: Any) -> Plan:
        """Return the plan of a run of this program.

        Args:
            folder: the folder for the run's own files.
            machine: "cpu", "simulated" or "cuda", as in `Plan`.
            **values: the other fields of the plan.
        """
        return Plan(
            folder=str(folder),
            machine=machine,
            roots=self.roots,
            rewritten=self.rewritten,
            places=self.places,
            origins=self.origins,
            digests=self.digests,
            notebook=self.notebook,
            waiting=self.waiting,
            answers=self.answers,
            **values,
        )

    def add(self, module: Rewritten, source: Path) -> None:
        """Add a module.

        Args:
            module: the module.
            source: where to store its new source.
        """
        real = os.path.realpath(module.path)
        source.write_bytes(module.content)
        self.rewritten[real] = str(source)
        self.fixes[real] = module.fixes
        self.places[real] = [place for fix in module.fixes for place in fix.places]
        self.origins[real] = module.origins
        self.digests[real] = digest(module.before), digest(module.content)
        self.fixed[real] = module.fixed


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
        found = files.find(sources, Modules(resolver), _ignore)
        readable = read_sources(found, resolver.changed(fix=True))
        program.unchanged += sorted({*map(os.fspath, found)} - {*readable.files})
        OnDemand(program, readable, folder)
    for module in rewritten or ():
        program.add(module, folder / f"{len(program.rewritten)}.py")
    return program


class OnDemand:
    """The modules of a program, which are rewritten when it imports them, or at once if they are few.

    A process of the program asks for a module with a file in a folder, and waits for the answer in another.

    Args:
        program: the program to add them to.
        modules: the modules.
        folder: where to store the new sources, the questions and the answers.
    """

    def __init__(self, program: Program, modules: Sources, folder: Path) -> None:
        self._program = program
        self._check = modules.check
        self._folder = folder
        self._asked = folder / "answers" / "asked"
        self._paths = dict(enumerate(modules.files))
        program.errors += [f"{outcome.path}: {outcome.error}" for outcome in modules.failed if outcome.error]
        if len(modules.files) <= _AT_ONCE:
            for number in self._paths:
                self._rewrite(number)
            return
        self._asked.mkdir(parents=True)
        program.answers = str(self._asked.parent)
        program.answer, program.rest = self.answer, self.rest
        program.waiting = {os.path.realpath(path): str(number) for number, path in self._paths.items()}

    def answer(self) -> None:
        """Rewrite the modules that the program has asked for."""
        for name in os.listdir(self._asked):
            answer = self._asked.with_name(name)
            if not answer.exists():
                real = self._rewrite(int(name))
                self._program.waiting.pop(real, None)
                values = {kind: getattr(self._program, kind).get(real) for kind in ANSWERED}
                new = answer.with_suffix(".new")
                new.write_text(json.dumps(values), encoding="utf-8")
                new.replace(answer)
            (self._asked / name).unlink()

    def rest(self) -> None:
        """Rewrite the modules that the program has not asked for."""
        for number, path in self._paths.items():
            if self._program.waiting.pop(os.path.realpath(path), None) is not None:
                self._rewrite(number)

    def _rewrite(self, number: int) -> str:
        """Add a module to the program, and return its real path."""
        path = self._paths[number]
        outcome = self._check(path)
        if outcome.error:
            self._program.errors.append(f"{outcome.path}: {outcome.error}")
        elif (module := Rewritten.of(outcome)) is not None:
            self._program.add(module, self._folder / f"{number}.py")
        else:
            self._program.unchanged.append(path)
        return os.path.realpath(path)


def _ignore(_: OSError) -> None:
    """Skip a folder that cannot be read: the program cannot import from it either."""
