"""An earlier migration report, to compare with: the report in JSON, which may come from anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from devicefix.config import sizes
from devicefix.config.json_files import JsonFormat

VERSION = 1
_LONGEST = 4096  # characters of a path
_HINT = "; create it with `devicefix report --output-format json`"
FORMAT = JsonFormat("a JSON report", VERSION, _HINT, _HINT, sizes.size("256M"))


class Entry(NamedTuple):
    """A finding as the machine formats of the report show it; docs/report.md explains the fields."""

    status: str | None
    path: str
    cell: int | None
    line: int
    column: int
    end_line: int
    end_column: int
    code: str
    name: str | None
    fix: str
    message: str
    category: str
    folder: str
    owners: tuple[str, ...]
    ran: bool | None
    fingerprint: str


class Earlier(NamedTuple):
    """An earlier report.

    Attributes:
        devicefix: the version that made it.
        revision: the revision of the code, empty if unknown.
        created: the time, empty if unknown.
        findings: its findings by their fingerprints.
    """

    devicefix: str
    revision: str
    created: str
    findings: dict[str, Entry]


def read(file: Path) -> Earlier:
    """Return an earlier report.

    Raises:
        ConfigError: the file cannot be read, or is no report in JSON.
    """
    return FORMAT.parsed(file, FORMAT.content(file), _earlier)


def _earlier(document: dict[str, Any]) -> Earlier:
    match document:
        case {
            "devicefix": str(version),
            "revision": str(revision),
            "created": str(created),
            "findings": list(findings),
        }:
            found = {entry.fingerprint: entry for entry in _entries(findings)}
            return Earlier(version, revision, created, found)
    raise ValueError('it must have "devicefix", "revision", "created" and "findings"')


def _entries(findings: list[Any]) -> Iterator[Entry]:
    for number, value in enumerate(findings):
        match value:
            case {
                "path": str(path),
                "cell": int() | None as cell,
                "line": int(line),
                "column": int(column),
                "end_line": int(end_line),
                "end_column": int(end_column),
                "code": str(code),
                "name": str() | None as name,
                "fix": "safe" | "unsafe" | "none" as fix,
                "message": str(message),
                "category": str(category),
                "fingerprint": str(fingerprint),
            } if min(line, column, end_line, end_column, cell or 1) > 0 and len(path) <= _LONGEST:
                place = (path, cell, line, column, end_line, end_column)
                yield Entry(None, *place, code, name, fix, message, category, "", (), None, fingerprint)
            case _:
                raise ValueError(f'"findings"[{number}] is not a valid finding')
