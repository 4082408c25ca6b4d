"""JSON with ruff's field names: an array with an object for each finding, or an object on each line."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any

from devicefix.config.printable import printable_json
from devicefix.facts.comments import comment_line
from devicefix.files.text import UNREADABLE, Source, parse
from devicefix.model import Finding, Fix, Replacement, Safety
from devicefix.report.checked import Checked, File, absolute
from devicefix.rewrite.preview import title
from devicefix.rules.pages import url
from devicefix.rules.registry import RULES

UNPARSABLE = "DF901"
VERSION = 1  # it grows when a field changes its meaning or goes
# How much a person has to review a fix.
_REVIEW = {Safety.SAFE: "none", Safety.UNSAFE: "glance"}


def render(checked: Checked) -> Iterator[str]:
    """Yield the text in pieces."""
    before = "["
    for entry in objects(checked):
        shown = printable_json(json.dumps(entry, indent=2, ensure_ascii=False))
        yield f"{before}\n  " + shown.replace("\n", "\n  ")
        before = ","
    yield "\n]\n" if before == "," else "[]\n"


def render_lines(checked: Checked) -> Iterator[str]:
    """Yield the text of the format JSON Lines in pieces."""
    for entry in objects(checked):
        yield printable_json(json.dumps(entry, separators=(",", ":"), ensure_ascii=False)) + "\n"


def objects(checked: Checked) -> Iterator[dict[str, Any]]:
    """Yield an object for each finding; docs/output.md explains its fields."""
    for file in checked.files:
        parsed = _parsed(file)
        for finding in file.findings:
            yield entry(finding, file.path, parsed)


def entry(finding: Finding, path: str, parsed: tuple[Source, ast.Module] | None = None) -> dict[str, Any]:
    """Return the object of a finding.

    Args:
        finding: the finding.
        path: its file.
        parsed: the code of the file, if a `noqa` comment may be on another line than the finding.
    """
    rule = RULES[finding.code]
    return {
        "cell": finding.cell,
        "code": finding.code,
        "end_location": _location(finding.end_line, finding.end_column),
        "filename": absolute(path),
        "fix": _fix(finding, finding.fix),
        "location": _location(finding.line, finding.column),
        "message": finding.message,
        "name": rule.name,
        "noqa_row": _noqa_row(finding, parsed),
        "review": "needed" if finding.fix is None else _REVIEW[finding.fix.safety],
        "severity": "error",
        "url": url(rule),
        "version": VERSION,
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


def _parsed(file: File) -> tuple[Source, ast.Module] | None:
    """Return the code of a file in which a `noqa` comment may be on another line than the finding."""
    if not any(word in file.data for word in (b'"""', b"'''", b"\\\n", b"\\\r")):
        return None
    try:
        source = Source(file.data)
        return source, parse(source.text)
    except UNREADABLE:
        return None  # not valid Python


def _noqa_row(finding: Finding, parsed: tuple[Source, ast.Module] | None) -> int | None:
    """Return the line on which a `noqa` comment suppresses a finding."""
    if finding.code == UNPARSABLE:
        return None
    if parsed is None or finding.cell is not None:
        return finding.line
    return comment_line(*parsed, finding.line)
