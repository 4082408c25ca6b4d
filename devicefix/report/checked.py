"""The findings of a run, as the output formats read them."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from devicefix.config.resolver import Resolver
from devicefix.config.settings import Settings
from devicefix.engine.check import rule_options
from devicefix.files.documents import STDIN, Content
from devicefix.model import Finding, Outcome


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
    def rules(self) -> frozenset[str]:
        """The codes of the rules that were enabled for the run."""
        return rule_options(self.settings).enabled

    def is_fixable(self, path: str, finding: Finding) -> bool:
        """Return whether `--fix` would fix a finding in a file."""
        return finding.is_fixable(self.resolver.of(path).unsafe_fixes)

    def unfixed(self) -> Checked:
        """Return the results with only the findings that `--fix` leaves."""
        outcomes = []
        for outcome in self.outcomes:
            left = [each for each in outcome.result.findings if not self.is_fixable(outcome.path, each)]
            outcomes.append(replace(outcome, result=replace(outcome.result, findings=left)))
        return replace(self, outcomes=outcomes)

    @property
    def files(self) -> Iterator[File]:
        """The files with findings."""
        return (File(outcome) for outcome in self.outcomes if outcome.result.findings)


class File(Content):
    """A file with findings."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.findings = outcome.result.findings

    def placed(self, finding: Finding) -> Finding:
        """Return a finding at its place in the file; one in a cell is on the lines with its JSON."""
        if finding.cell is None:
            return finding
        from devicefix.files.notebook.lines import file_line

        first, last = (file_line(self.data, finding.cell, line) for line in (finding.line, finding.end_line))
        lines = self.lines()
        start = len(lines[first - 1]) - len(lines[first - 1].lstrip())
        end = len(lines[last - 1].rstrip())
        return replace(finding, line=first, column=start + 1, end_line=last, end_column=end + 1, cell=None)

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
