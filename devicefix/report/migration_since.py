"""The changes of the migration report since an earlier one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from devicefix.report.earlier import Earlier, Entry
from devicefix.report.migration_ties import File

NEW, KNOWN, FIXED, UNCHECKED = "new", "known", "fixed", "unchecked"
UNPARSABLE = "DF901"


class Progress(NamedTuple):
    """The numbers of ties that are new, known, fixed, and unchecked since an earlier report."""

    new: int
    known: int
    fixed: int
    unchecked: int


@dataclass(frozen=True)
class Since:
    """The changes since an earlier report.

    Attributes:
        earlier: the earlier report.
        fixed: its findings that are gone, in files and of rules that were checked again.
        unchecked: its findings that may still be there.
        statuses: for each finding of both reports its package and its status.
    """

    earlier: Earlier
    fixed: list[Entry]
    unchecked: list[Entry]
    statuses: list[tuple[str, str]]

    @property
    def total(self) -> Progress:
        """The progress of all packages."""
        return _progress(status for _, status in self.statuses)

    @property
    def packages(self) -> list[tuple[str, Progress]]:
        """The progress of each package, those with the most changes first."""
        by_package: dict[str, list[str]] = {}
        for package, status in self.statuses:
            by_package.setdefault(package, []).append(status)
        found = ((package, _progress(statuses)) for package, statuses in by_package.items())
        return sorted(found, key=lambda each: (-each[1].fixed - each[1].new, -each[1].known, each[0]))


def _progress(statuses: Iterable[str]) -> Progress:
    counted = Counter(statuses)
    return Progress(*(counted[status] for status in (NEW, KNOWN, FIXED, UNCHECKED)))


def gone(
    files: Iterable[File], checked: Iterable[str], rules: Collection[str], earlier: Earlier
) -> list[Entry]:
    """Return the findings of an earlier report that are not in this one, each with its status.

    A finding is fixed only if its file was checked with its rule. The other rules see nothing in a file that
    cannot be parsed.

    Args:
        files: the files with findings.
        checked: the paths of all files that were checked.
        rules: the codes of the rules that they were checked with.
        earlier: the earlier report.
    """
    ties = [(file.path, tie) for file in files for tie in file.ties]
    here = {tie.fingerprint for _, tie in ties}
    again = {*checked} - {path for path, tie in ties if tie.finding.code == UNPARSABLE}
    known = {*rules} | {tie.finding.code for _, tie in ties}
    gone = (entry for fingerprint, entry in earlier.findings.items() if fingerprint not in here)
    fixed = ((entry, entry.path in again and entry.code in known) for entry in gone)
    return [entry._replace(status=FIXED if is_fixed else UNCHECKED) for entry, is_fixed in fixed]


def since(files: Iterable[File], earlier: Earlier, gone: list[Entry]) -> Since:
    """Return the changes since an earlier report.

    Args:
        files: the files with findings, whose status is known.
        earlier: the earlier report.
        gone: its findings that are not in this one.
    """
    statuses = [(file.package, tie.status or NEW) for file in files for tie in file.ties]
    statuses += ((entry.folder, entry.status or FIXED) for entry in gone)
    fixed, unchecked = ([entry for entry in gone if entry.status == status] for status in (FIXED, UNCHECKED))
    return Since(earlier, fixed, unchecked, statuses)
