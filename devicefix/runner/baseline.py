"""The baseline: known findings, so that only new ones are reported.

An entry is a file, a code and the text of the line, without its number, so that code may move. A line that
occurs more often than it has entries is new.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from devicefix.config.json_files import JsonFormat
from devicefix.files import system
from devicefix.files.documents import Content
from devicefix.model import Finding, Outcome

FORMAT = JsonFormat("a baseline", 1, "; create it with --write-baseline")
_LONGEST = 200  # characters of a line; it may be minified, or data


class Entry(NamedTuple):
    """A known finding; `path` is relative to the folder of the baseline, with `/` as the separator."""

    path: str
    code: str
    line: str


def read(file: Path) -> Counter[Entry]:
    """Return the entries of a baseline.

    Raises:
        ConfigError: the file cannot be read, or is not a baseline.
    """
    return FORMAT.parsed(file, FORMAT.content(file), lambda document: Counter(_entries(document)))


def _entries(document: dict[str, Any]) -> Iterable[Entry]:
    for path, codes in _table(document.get("findings"), '"findings"').items():
        for code, lines in _table(codes, f'"findings", {path!r}').items():
            if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
                raise ValueError(f'"findings", {path!r}, {code!r} must be a list of strings')
            yield from (Entry(path, code, line) for line in lines)


def _table(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object")
    return value


def written(entries: Iterable[Entry]) -> bytes:
    """Return the bytes of a baseline, with one sorted entry a line, for readable diffs."""
    findings: dict[str, dict[str, list[str]]] = {}
    for path, code, line in sorted(entries):
        findings.setdefault(path, {}).setdefault(code, []).append(line)
    text = json.dumps({"version": FORMAT.version, "findings": findings}, indent=2, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace")  # for a path that is not valid text


def entries(outcome: Outcome, folder: Path) -> list[Entry]:
    """Return the findings of a file as entries of a baseline in a folder."""
    findings = outcome.result.findings
    if not findings:
        return []
    path, content = relative(outcome.path, folder), Content(outcome)
    return [Entry(path, finding.code, _line(content, finding)) for finding in findings]


def _line(content: Content, finding: Finding) -> str:
    """Return the stripped line where a finding starts; empty if there is none."""
    lines = content.lines(finding.cell)
    return lines[finding.line - 1].strip()[:_LONGEST] if finding.line <= len(lines) else ""


def relative(path: str, folder: Path) -> str:
    """Return a path as a baseline in a folder spells it."""
    return system.relative(os.path.abspath(path), folder.absolute()).replace(os.sep, "/")


def split(outcomes: Iterable[Outcome], known: Counter[Entry], folder: Path) -> list[Outcome]:
    """Return outcomes with new findings only, and remove the known ones from `known`."""
    found = []
    for outcome in outcomes:
        new: list[Finding] = []
        for finding, entry in zip(outcome.result.findings, entries(outcome, folder), strict=True):
            if known[entry]:
                known[entry] -= 1
            else:
                new.append(finding)
        found.append(replace(outcome, result=replace(outcome.result, findings=new)))
    return found
