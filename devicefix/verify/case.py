"""A run to explain, and what is known of its program."""

from __future__ import annotations

import ast
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from devicefix.config.resolver import Everywhere, Resolver
from devicefix.config.settings import Settings
from devicefix.facts import Facts
from devicefix.facts.path_conditions import conditions_around
from devicefix.files.text import UNREADABLE
from devicefix.model import Finding
from devicefix.runner.run import check_files
from devicefix.verify.cause import Tie
from devicefix.verify.places import parts, shown_path, source
from devicefix.verify.program import Program
from devicefix.verify.runs import Task
from devicefix.verify.trials import Trials
from devicefix.verify.verdict import EXIT, Failure, Location, Request, Run

SHOWN = 3  # lines that may be the cause


@dataclass(slots=True)
class Case:
    """A run to explain, and what is known of its program.

    Attributes:
        run: the run of the rewritten program.
        task: what was run.
        program: the rewritten program.
        resolver: the settings that it was rewritten with.
        trials: runs that can show the cause.
    """

    run: Run
    task: Task
    program: Program
    resolver: Resolver
    trials: Trials
    _found: dict[str, list[Finding]] = field(default_factory=dict)

    @property
    def failure(self) -> Failure:
        """The error that ended the program."""
        assert self.run.failure is not None
        return self.run.failure

    @property
    def frames(self) -> tuple[Location, ...]:
        """The program's lines in the traceback, the innermost first."""
        return self.run.failure.frames[::-1] if self.run.failure else ()

    @property
    def cause(self) -> tuple[Location, ...]:
        """The innermost line of the traceback; if it raises the error, with the conditions it is under."""
        if not self.frames or not (self.raises or self.failure.kind == EXIT):
            return self.frames[:1]
        return self.frames[0], *_conditions(self.frames[0])

    @property
    def requests(self) -> list[Request]:
        """The requests for CUDA that the program's own lines make."""
        return [request for request in self.run.requests if request.library is None]

    @property
    def raises(self) -> bool:
        """True if a statement of the program raises the error, rather than what it calls."""
        if not self.frames or self.failure.library:
            return False
        text = source(self.frames[0])
        words = ("raise", "assert") if self.failure.kind == "AssertionError" else "raise"
        return text.startswith(words)

    def fixed(self, place: Location) -> list[Finding]:
        """Return the findings at a line that are fixed."""
        return [finding for finding in self._applied(place.file) if _covers(finding, place)]

    def ties(self, places: Iterable[Location]) -> tuple[Tie, ...]:
        """Return the findings that are left at some lines."""
        found: dict[tuple[str, str, int, int], Tie] = {}
        for at in places:
            for finding in self.left(at.file):
                if _covers(finding, at):
                    found.setdefault(_key(at.file, finding), self._tie(at, finding))
        return tuple(found.values())

    def ties_in(self, files: Iterable[str]) -> tuple[Tie, ...]:
        """Return the first findings that are left in some files."""
        left = ((file, finding) for file in dict.fromkeys(files) for finding in self.left(file)[:SHOWN])
        return tuple(self._tie(Location(file, finding.line), finding) for file, finding in left)

    def left(self, file: str) -> list[Finding]:
        """Return the findings of all rules in a file that are not fixed."""
        if file not in self._found:
            done = {_key(file, finding) for finding in self._applied(file)}
            self._found[file] = [f for f in self._all(file) if _key(file, f) not in done]
        return self._found[file]

    def _applied(self, file: str) -> list[Finding]:
        path, cell = parts(file)
        module = self.program.modules.get(os.path.realpath(path))
        found = [self._in_cell(finding, path) for finding in (module.fixed if module else ())]
        return [finding for finding in found if finding.cell == cell]

    def _in_cell(self, finding: Finding, path: str) -> Finding:
        """Return a finding in the module of a notebook as one in a cell; any other stays as it is."""
        if self.program.notebook.get("path") != path:
            return finding
        lines = self.program.notebook["lines"]
        cell, line = lines[finding.line - 1]
        return replace(finding, cell=cell, line=line, end_line=lines[finding.end_line - 1][1])

    def _all(self, file: str) -> list[Finding]:
        path, cell = parts(file)
        if not os.path.isfile(path):
            return []
        settings = self.resolver.of(path)
        kept: Any = {name: getattr(settings, name) for name in ("extend_select", "target", "torch_version")}
        every = Settings(**kept, quiet=True, ignore_noqa=True, replacements=True)
        found = check_files([Path(path)], Everywhere(every))[0].result.findings
        return [finding for finding in found if finding.cell == cell]

    def _tie(self, at: Location, finding: Finding) -> Tie:
        return Tie(at, finding.portable(), self._advice(at, finding))

    def _advice(self, at: Location, finding: Finding) -> str:
        code = finding.code
        settings = self.resolver.of(parts(at.file)[0])
        if not settings.for_file(at.file).enabled(code):
            return f"{code} is disabled; enable it to rewrite this line"
        if finding.safety is None and not settings.fixes(code):
            return f"{code} is unfixable in the configuration; make it fixable to rewrite this line"
        if finding.safety is None:
            return f"there is no automatic fix; see `devicefix rule {code}`"
        if finding.safety.value == "unsafe" and not settings.unsafe_fixes:
            file = shlex.quote(shown_path(parts(at.file)[0]))
            advice = f"review it, then run `devicefix check --select {code} --fix --unsafe-fixes {file}`"
            return f"the fix is unsafe: it may change the program's behavior; {advice}"
        if "noqa" in source(Location(at.file, finding.end_line)):
            return f"a comment suppresses {code}; remove the comment, or use `--ignore-noqa`"
        return f"see `devicefix rule {code}`"


def _conditions(place: Location) -> Iterator[Location]:
    """Yield the lines of the conditions under which a line runs, the innermost first."""
    try:
        tree = Facts.read(Path(place.file).read_bytes()).tree
    except (OSError, *UNREADABLE):  # a cell of a notebook, or a file that has changed
        return
    for node in tree.nodes_at([place.line]):
        if isinstance(node, ast.stmt):
            tests = (test for test, _ in conditions_around(tree, node))
            yield from (Location(place.file, test.lineno, place.function) for test in tests)


def _covers(finding: Finding, place: Location) -> bool:
    return finding.line <= place.line <= finding.end_line


def _key(file: str, finding: Finding) -> tuple[str, str, int, int]:
    return os.path.realpath(file), finding.code, finding.line, finding.column
