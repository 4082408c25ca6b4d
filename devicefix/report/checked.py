"""The findings of a run, as the output formats read them."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from devicefix.config.resolver import Resolver
from devicefix.config.settings import Settings
from devicefix.files.documents import text_of
from devicefix.model import Finding, Outcome
from devicefix.rules.registry import RULES

LINE_END = re.compile(r"\r\n|\r|\n")
STDIN = "-"


@dataclass(frozen=True)
class Checked:
    """The results of a run.

    Attributes:
        outcomes: the files that were checked.
        failed: the files that could not be checked, each with its error.
        resolver: the settings of the run and of its files.
    """

    outcomes: Sequence[Outcome]
    failed: Sequence[Outcome]
    resolver: Resolver

    @property
    def settings(self) -> Settings:
        """The settings of the run."""
        return self.resolver.root

    @property
    def rules(self) -> set[str]:
        """The codes of the rules that were enabled for the run."""
        return {
            code
            for code, rule in RULES.items()
            if self.settings.target in rule.targets and self.settings.enabled(code, rule.default)
        }

    def is_fixable(self, path: str, finding: Finding) -> bool:
        """Return whether `--fix` would fix a finding in a file."""
        return finding.is_fixable(self.resolver.of(path).unsafe_fixes)

    def unfixed(self) -> Checked:
        """Return the results with only the findings that `--fix` leaves."""
        outcomes = [
            replace(outcome, result=replace(outcome.result, findings=self._unfixed(outcome)))
            for outcome in self.outcomes
        ]
        return replace(self, outcomes=outcomes)

    def _unfixed(self, outcome: Outcome) -> list[Finding]:
        return [each for each in outcome.result.findings if not self.is_fixable(outcome.path, each)]

    @property
    def files(self) -> Iterator[File]:
        """The files with findings."""
        return (File(outcome) for outcome in self.outcomes if outcome.result.findings)


class FileSpan(NamedTuple):
    """The lines and columns of a finding in its file."""

    line: int
    column: int
    end_line: int
    end_column: int


class File:
    """A file with findings.

    Args:
        outcome: the result of checking the file.
    """

    def __init__(self, outcome: Outcome) -> None:
        self.path = outcome.path
        self.findings = outcome.result.findings
        self._before = outcome.before
        self._lines: dict[int | None, list[str]] = {}

    @cached_property
    def data(self) -> bytes:
        """The file's content; empty if it has been removed since it was checked."""
        if self._before or self.path == STDIN:
            return self._before
        with suppress(OSError):
            return Path(self.path).read_bytes()
        return b""

    def lines(self, cell: int | None = None) -> list[str]:
        """Return the lines, without line ends, of the text or of a notebook's cell.

        Args:
            cell: the number of the cell, None for the whole text.
        """
        if cell not in self._lines:
            self._lines[cell] = LINE_END.split(text_of(self.data, cell))
        return self._lines[cell]

    def span(self, finding: Finding) -> FileSpan:
        """Return where a finding is in the file; for one in a cell, the lines with its JSON."""
        if finding.cell is None:
            return FileSpan(finding.line, finding.column, finding.end_line, finding.end_column)
        from devicefix.files.notebook.lines import file_line

        first, last = (file_line(self.data, finding.cell, line) for line in (finding.line, finding.end_line))
        lines = self.lines()
        start = len(lines[first - 1]) - len(lines[first - 1].lstrip())
        return FileSpan(first, start + 1, last, len(lines[last - 1].rstrip()) + 1)

    def fingerprints(self, name: str) -> list[str]:
        """Return a fingerprint of each finding: unique, and stable when lines move.

        Args:
            name: the file's name, which must not depend on where the project is.
        """
        seen: Counter[tuple[str, ...]] = Counter()
        made = []
        for finding in self.findings:
            lines = self.lines(finding.cell)[finding.line - 1 : finding.end_line]
            key = (name, finding.code, *(line.strip() for line in lines))
            seen[key] += 1
            text = "\0".join((*key, str(seen[key])))
            made.append(hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:32])
        return made


def below(path: str, root: Path) -> str | None:
    """Return the path of a file relative to a folder, with `/` between its parts; None if it is not below.

    Args:
        path: the path, whose own last part may be a link.
        root: the folder, without links in its path.
    """
    whole = Path(os.path.abspath(path))
    with suppress(OSError):
        whole = whole.parent.resolve() / whole.name
    try:
        return whole.relative_to(root).as_posix()
    except ValueError:
        return None


def absolute(path: str) -> str:
    """Return the absolute path, as `as_text` does; the standard input keeps its name."""
    return as_text(path if path == STDIN else os.path.abspath(path))


def as_text(path: str) -> str:
    """Return the path with undecodable bytes replaced, as in ruff's output."""
    return path.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")
