"""JSON with ruff's field names: an array with an object for each finding."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any

from devicefix.config.printable import printable_json
from devicefix.facts.comments import comment_line
from devicefix.files.text import DecodeError, Source, parse
from devicefix.model import Finding, Fix, Replacement
from devicefix.report.checked import Checked, File, absolute
from devicefix.rewrite.preview import title
from devicefix.rules.pages import url
from devicefix.rules.registry import RULES

UNPARSABLE = "DF901"


def render(checked: Checked) -> Iterator[str]:
    """Yield the text in pieces."""
    before = "["
    for entry in objects(checked):
        shown = printable_json(json.dumps(entry, indent=2, ensure_ascii=False))
        yield f"{before}\n  " + shown.replace("\n", "\n  ")
        before = ","
    yield "\n]\n" if before == "," else "[]\n"


def objects(checked: Checked) -> Iterator[dict[str, Any]]:
    """Yield an object for each finding; docs/output.md explains its fields."""
    for file in checked.files:
        rows = _NoqaRows(file)
        for finding in file.findings:
            rule = RULES.get(finding.code)
            yield {
                "cell": finding.cell,
                "code": finding.code,
                "end_location": _location(finding.end_line, finding.end_column),
                "filename": absolute(file.path),
                "fix": _fix(finding, finding.fix),
                "location": _location(finding.line, finding.column),
                "message": finding.message,
                "name": rule.name if rule else None,
                "noqa_row": rows.of(finding),
                "severity": "error",
                "url": url(rule) if rule else None,
            }


def _fix(finding: Finding, fix: Fix | None) -> dict[str, Any] | None:
    if fix is None:
        return None
    edits = [_edit(replacement) for replacement in fix.replacements]
    return {"applicability": fix.safety.value, "edits": edits, "message": title(finding)}


def _edit(replacement: Replacement) -> dict[str, Any]:
    edit = {
        "content": replacement.text,
        "end_location": _location(replacement.end_line, replacement.end_column),
        "location": _location(replacement.line, replacement.column),
    }
    return edit if replacement.cell is None else {"cell": replacement.cell, **edit}


def _location(line: int, column: int) -> dict[str, int]:
    return {"column": column, "row": line}


class _NoqaRows:
    """The lines on which a `noqa` comment suppresses a file's findings."""

    def __init__(self, file: File) -> None:
        self._parsed: tuple[Source, ast.Module] | None = None
        if all(finding.code == UNPARSABLE or finding.cell is not None for finding in file.findings):
            return
        if not any(word in file.data for word in (b'"""', b"'''", b"\\\n", b"\\\r")):
            return
        try:
            source = Source(file.data)
            self._parsed = source, parse(source.text)
        except (DecodeError, SyntaxError, ValueError, RecursionError, MemoryError):
            return  # not valid Python

    def of(self, finding: Finding) -> int | None:
        if finding.code == UNPARSABLE:
            return None
        if self._parsed is None or finding.cell is not None:
            return finding.line
        return comment_line(*self._parsed, finding.line)
