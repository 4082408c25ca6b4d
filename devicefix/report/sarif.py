"""SARIF 2.1.0.

See https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from devicefix.config.installation import SOURCE
from devicefix.config.printable import printable_json
from devicefix.config.version import __version__
from devicefix.files.discover import root_of
from devicefix.files.documents import STDIN
from devicefix.model import Finding, Fix, Outcome, Replacement, Safety
from devicefix.report.checked import Checked, File, below
from devicefix.rewrite.preview import title
from devicefix.rules.categories import category
from devicefix.rules.pages import page, url
from devicefix.rules.registry import RULES

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"  # GitHub resolves it to the top of the repository
LEVEL = "error"


def render(checked: Checked) -> Iterator[str]:
    """Yield the text in pieces."""
    root = root_of(Path()).resolve()
    # The rules that were enabled, and those with findings.
    found = {finding.code for outcome in checked.outcomes for finding in outcome.result.findings}
    rules = [_rule(code) for code in sorted(found | checked.rules)]
    numbers = {rule["id"]: number for number, rule in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "devicefix",
                "semanticVersion": __version__,
                "informationUri": SOURCE,
                "rules": rules,
            }
        },
        "columnKind": "unicodeCodePoints",
        "newlineSequences": ["\r\n", "\n", "\r"],
        "originalUriBaseIds": {ROOT: {"uri": root.as_uri() + "/" * (not root.as_uri().endswith("/"))}},
        "invocations": [_invocation(checked.failed, root)],
        "results": [result for file in checked.files for result in _results(file, numbers, root)],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    yield printable_json(json.dumps(log, indent=2, ensure_ascii=False)) + "\n"


# -- rules ---------------------------------------------------------------------------------------------


def _rule(code: str) -> dict[str, Any]:
    rule = RULES[code]
    text = page(rule)
    described: dict[str, Any] = {
        "id": code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": _first_section(text) or rule.summary},
        "help": {"text": text, "markdown": text},
        "defaultConfiguration": {"enabled": rule.default, "level": LEVEL},
        "properties": {"tags": [category(code).name], "problem.severity": LEVEL},
    }
    address = url(rule)
    return described if address is None else described | {"helpUri": address}


def _first_section(page: str) -> str:
    """Return the first section of a page on one line."""
    _, _, below = page.partition("\n## ")
    body = below.partition("\n")[2].partition("\n## ")[0]
    return " ".join(body.split())


# -- results -------------------------------------------------------------------------------------------


def _results(file: File, numbers: dict[str, int], root: Path) -> Iterator[dict[str, Any]]:
    artifact = _artifact(file.path, root)
    for finding, fingerprint in zip(file.findings, file.fingerprints(artifact["uri"]), strict=True):
        cell = "" if finding.cell is None else f" (cell {finding.cell}, line {finding.line})"
        location = {"artifactLocation": artifact, "region": _region(file.placed(finding))}
        result: dict[str, Any] = {
            "ruleId": finding.code,
            "ruleIndex": numbers[finding.code],
            "level": LEVEL,
            "message": {"text": finding.message + cell},
            "locations": [{"physicalLocation": location}],
            "partialFingerprints": {"lines/v1": fingerprint},
        }
        fix = finding.fix
        if fix and fix.replacements and all(replacement.cell is None for replacement in fix.replacements):
            result["fixes"] = [_fix(finding, fix, artifact)]
        yield result


def _fix(finding: Finding, fix: Fix, artifact: dict[str, str]) -> dict[str, Any]:
    unsafe = " (unsafe: may change the program's behavior)" if fix.safety is Safety.UNSAFE else ""
    replacements = [
        {"deletedRegion": _region(replacement), "insertedContent": {"text": replacement.text}}
        for replacement in fix.replacements
    ]
    return {
        "description": {"text": title(finding) + unsafe},
        "artifactChanges": [{"artifactLocation": artifact, "replacements": replacements}],
        "properties": {"applicability": fix.safety.value},
    }


def _region(span: Finding | Replacement) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }


def _artifact(path: str, root: Path) -> dict[str, str]:
    """Return the location of a file, relative to the root if the file is below it."""
    if path == STDIN:
        return {"uri": STDIN}
    relative = below(path, root)
    if relative is None:
        return {"uri": Path(os.path.abspath(path)).as_uri()}
    return {"uri": quote(os.fsencode(relative)), "uriBaseId": ROOT}


def _invocation(failed: Sequence[Outcome], root: Path) -> dict[str, Any]:
    """Return the status of the run, with the files that could not be checked."""
    notifications = [
        {
            "level": "error",
            "message": {"text": outcome.error or ""},
            "locations": [{"physicalLocation": {"artifactLocation": _artifact(outcome.path, root)}}],
        }
        for outcome in failed
    ]
    return {"executionSuccessful": not failed, "toolExecutionNotifications": notifications}
