"""Annotations of a GitHub Actions run.

See https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands. Values are escaped
as in GitHub's own toolkit, https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts,
except for what could break the line or control a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator

from devicefix.config.printable import printable
from devicefix.model import Finding
from devicefix.report.checked import Checked, absolute, as_text
from devicefix.report.wording import place


def render(checked: Checked) -> Iterator[str]:
    """Yield the text in pieces."""
    for outcome in checked.failed:
        yield _command({"title": "devicefix", "file": absolute(outcome.path)}, outcome.error or "")
    for file in checked.files:
        for finding in file.findings:
            at = {
                "title": f"devicefix ({finding.code})",
                "file": absolute(file.path),
                **_lines(file.placed(finding)),
            }
            where = f"{as_text(file.path)}:{place(finding)}"
            yield _command(at, f"{where}: {finding.code} {finding.message}")


def _lines(finding: Finding) -> dict[str, object]:
    """Return the lines and columns of a finding in its file; GitHub accepts columns only within one line."""
    lines = {"line": finding.line, "endLine": finding.end_line}
    columns = {"col": finding.column, "endColumn": finding.end_column}
    return {**lines, **columns} if finding.line == finding.end_line else {**lines}


def _command(properties: dict[str, object], message: str) -> str:
    shown = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::error {shown}::{_data(message)}\n"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    lines = ("%0D".join(map(_data, line.split("\r"))) for line in text.split("\n"))
    return "%0A".join(lines).replace(":", "%3A").replace(",", "%2C")
