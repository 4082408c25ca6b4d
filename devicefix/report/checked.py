"""What the output formats of `devicefix check` are handed, and what several of them make of it."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from devicefix.config.settings import Settings
from devicefix.files.documents import text_of
from devicefix.model import Finding, Outcome

LINE_END = re.compile(r"\r\n|\r|\n")
STDIN = "-"


@dataclass(frozen=True)
class Checked:
    """What a look at files has come to.

    Attributes:
        outcomes: the files that were looked at, with what was found in them.
        failed: those that could not be, each with its error.
        settings: what was looked for.
    """

    outcomes: Sequence[Outcome]
    failed: Sequence[Outcome]
    settings: Settings

    @property
    def files(self) -> Iterator[File]:
        """The files in which something was found."""
        return (File(outcome) for outcome in self.outcomes if outcome.result.findings)


class File:
    """A file in which something was found."""

    def __init__(self, outcome: Outcome) -> None:
        self.path = outcome.path
        self.findings = outcome.result.findings
        self._before = outcome.before
        self._lines: dict[int | None, list[str]] = {}

    @cached_property
    def data(self) -> bytes:
        """What is in it; nothing where it has gone since it was looked at."""
        if self._before or self.path == STDIN:
            return self._before
        with suppress(OSError):
            return Path(self.path).read_bytes()
        return b""

    def lines(self, cell: int | None = None) -> list[str]:
        """The lines of the text, or of a notebook's cell, without their ends."""
        if cell not in self._lines:
            self._lines[cell] = LINE_END.split(text_of(self.data, cell))
        return self._lines[cell]

    def fingerprints(self, name: str) -> list[str]:
        """For each finding what tells it from all others, and stays as it is where only lines move.

        Args:
            name: of the file, the same wherever the project is.
        """
        seen: Counter[tuple[str, ...]] = Counter()
        made = []
        for finding in self.findings:
            lines = self.lines(finding.cell)[finding.line - 1 : finding.end_line]
            what = (name, finding.code, *(line.strip() for line in lines))
            seen[what] += 1
            text = "\0".join((*what, str(seen[what])))
            made.append(hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:32])
        return made


def absolute(path: str) -> str:
    """A path for programs that run elsewhere, as text: bytes that are none are replaced, as ruff does."""
    return as_text(path if path == STDIN else os.path.abspath(path))


def as_text(path: str) -> str:
    """A path, in which bytes that are no text are replaced."""
    return path.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")


def place(finding: Finding) -> str:
    """Where a finding is in its file: `12:3`, in a notebook `cell 4:12:3`."""
    cell = f"cell {finding.cell}:" if finding.cell else ""
    return f"{cell}{finding.line}:{finding.column}"
