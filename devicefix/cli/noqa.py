"""`devicefix check --add-noqa`: suppress findings with comments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from devicefix.cli.changes import check_changes, write_changes
from devicefix.cli.errors import print_error
from devicefix.files import write as files
from devicefix.report.wording import count, place

if TYPE_CHECKING:
    from devicefix.facts.comments import Added
    from devicefix.model import Finding
    from devicefix.report.checked import Checked


def add(checked: Checked) -> bool:
    """Add `noqa` comments for the findings, and print how many lines got one and which findings got none.

    Args:
        checked: the results of the run.

    Returns:
        Whether findings remain.
    """
    changes: list[files.Change] = []
    lines: dict[str, int] = {}
    remaining = failed = False
    for outcome in checked.outcomes:
        path, findings = outcome.path, outcome.result.findings
        try:
            before = Path(path).read_bytes() if findings else b""
        except OSError as error:
            print_error(path, error.strerror or str(error))
            failed = True
            continue
        added = _with_comments(path, before, findings)
        if added.lines:
            changes.append(files.Change(path, before, added.data))
            lines[path] = added.lines
        for finding in added.left:
            remaining = True
            message = f"no comment can suppress {finding.code} here; use a baseline or per-file-ignores"
            print_error(f"{path}:{place(finding)}", message)
    check_changes(changes, require_clean=False)
    unwritten = write_changes(changes)
    if not checked.settings.quiet:
        added_lines = sum(number for path, number in lines.items() if path not in unwritten)
        click.echo(f"Added {count(added_lines, 'noqa directive')}.")
    return remaining or failed or bool(unwritten)


def _with_comments(path: str, data: bytes, findings: list[Finding]) -> Added:
    """Return the file with comments; one that is not Python by name, or was not parsed, stays as it is."""
    from devicefix.facts import comments
    from devicefix.files.kinds import is_python
    from devicefix.rules.unparsable import Unparsable

    parsed = all(finding.code != Unparsable.code for finding in findings)
    if findings and parsed and (is_python(path) or not Path(path).suffix):
        return comments.add(data, findings)
    return comments.Added(data, 0, findings)
