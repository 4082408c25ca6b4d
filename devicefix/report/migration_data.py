"""The migration report for programs: JSON, which a later report compares with, and CSV, one row a finding."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from typing import Any

from devicefix.config.printable import printable, printable_json
from devicefix.config.version import __version__
from devicefix.report.checked import as_text
from devicefix.report.earlier import VERSION, Entry
from devicefix.report.migration import About, Migration
from devicefix.report.migration_ties import Group

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet calculates a cell that starts so


def to_json(migration: Migration, about: About) -> str:
    """Return the report in JSON, with one finding a line for readable diffs."""
    since = migration.since
    head: dict[str, Any] = {
        "version": VERSION,
        "devicefix": __version__,
        "title": about.title,
        "revision": about.revision,
        "created": about.made,
        "files": {
            "checked": migration.checked,
            "with_findings": len(migration.files),
            "failed": migration.failed,
        },
        "total": _counts(migration),
        "folders": {group.key: _counts(group) for group in migration.packages},
        "owners": {group.key: _counts(group) for group in migration.owners},
        "since": since
        and {
            "devicefix": since.earlier.devicefix,
            "revision": since.earlier.revision,
            "created": since.earlier.created,
            **since.total._asdict(),
        },
    }
    lines = [f"  {_dumped(name)}: {_dumped(value)}" for name, value in head.items()]
    gone = [*since.fixed, *since.unchecked] if since else []
    entries = {"findings": migration.entries(), "gone": gone}
    lines += [f'  "{name}": {_list(map(Entry._asdict, of_it))}' for name, of_it in entries.items()]
    return printable_json("{\n" + ",\n".join(lines) + "\n}\n")


def to_csv(migration: Migration) -> str:
    """Return the findings as CSV, and those of an earlier report that are gone."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(Entry._fields)
    gone = [*migration.since.fixed, *migration.since.unchecked] if migration.since else []
    for entry in [*migration.entries(), *gone]:
        table.writerow(map(_cell, entry))
    return text.getvalue()


def _counts(group: Group | Migration) -> dict[str, Any]:
    files = len(group.files) if isinstance(group, Migration) else group.files
    run = {"fixes": group.fixes, "ran": group.verified} if group.fixes else {}
    return {"files": files, "lines": group.lines, "findings": group.total, **group.counts, **run}


def _list(entries: Iterable[dict[str, Any]]) -> str:
    lines = [f"    {_dumped(entry)}" for entry in entries]
    return "[\n" + ",\n".join(lines) + "\n  ]" if lines else "[]"


def _dumped(value: Any) -> str:
    return as_text(json.dumps(value, ensure_ascii=False))


def _cell(value: object) -> str:
    """Return a value as the text of a cell, which is no formula."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case tuple():
            return _cell(" ".join(value))
        case _:
            text = printable(str(value))
            return f"'{text}" if text.startswith(_FORMULA) else text
