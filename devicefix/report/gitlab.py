"""A GitLab Code Quality report.

See https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from devicefix.config.printable import printable_json
from devicefix.files.documents import STDIN
from devicefix.files.system import relative
from devicefix.model import Finding
from devicefix.report.checked import Checked, as_text


def render(checked: Checked) -> Iterator[str]:
    """Yield the text in pieces."""
    issues = []
    for file in checked.files:
        path = _in_project(file.path)
        for finding, fingerprint in zip(file.findings, file.fingerprints(path), strict=True):
            issues.append(_issue(file.placed(finding), path, fingerprint))
    yield printable_json(json.dumps(issues, indent=2, ensure_ascii=False)) + "\n"


def _issue(finding: Finding, path: str, fingerprint: str) -> dict[str, Any]:
    start = {"line": finding.line, "column": finding.column}
    end = {"line": finding.end_line, "column": finding.end_column}
    return {
        "check_name": finding.code,
        "description": f"{finding.code}: {finding.message}",
        "severity": "major",
        "fingerprint": fingerprint,
        "location": {"path": path, "positions": {"begin": start, "end": end}},
    }


def _in_project(path: str) -> str:
    """Return a path relative to GitLab's project folder, or else to the current folder."""
    if path != STDIN:
        path = relative(path, os.environ.get("CI_PROJECT_DIR") or os.curdir)
    return as_text(path.replace(os.sep, "/"))
