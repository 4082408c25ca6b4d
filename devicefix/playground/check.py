"""Check and rewrite the code of one request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from devicefix.api import DevicefixError, Finding, Target, check_source, rewrite_source
from devicefix.config.printable import printable, printable_lines
from devicefix.files.differences import Differences
from devicefix.files.text import LINE_END

_KEYS = {"source": str, "notebook": bool, "target": str, "unsafe": bool}


class InvalidRequest(ValueError):
    """A request that the page would not send; the message says why."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the page.

    Attributes:
        source: the text of the file.
        notebook: whether it is a Jupyter notebook.
        target: what the program runs on besides the CPU.
        unsafe: whether to apply unsafe fixes.
    """

    source: str
    notebook: bool
    target: Target
    unsafe: bool

    @classmethod
    def read(cls, data: bytes) -> Request:
        """Return the request in the body of a message.

        Raises:
            InvalidRequest: it is not one.
        """
        try:
            values = json.loads(data)
        except (ValueError, RecursionError):
            raise InvalidRequest("the request is not JSON") from None
        if not isinstance(values, dict) or values.keys() != _KEYS.keys():
            raise InvalidRequest(f"the request must have the keys {', '.join(_KEYS)}")
        for key, kind in _KEYS.items():
            if not isinstance(values[key], kind):
                raise InvalidRequest(f"the type of {key!r} must be {kind.__name__}")
        if values["target"] not in get_args(Target):
            raise InvalidRequest(f"the target must be one of {', '.join(get_args(Target))}")
        return cls(**values)


def answer(request: Request, folder: str) -> dict[str, Any]:
    """Return what the page shows: the findings and the rewritten code, or an error.

    Args:
        request: what the page asks for.
        folder: an empty folder. The code is checked as a file in it, so that its imports lead to no file.
    """
    path = str(Path(folder, "source.ipynb" if request.notebook else "source.py"))
    try:
        findings = check_source(request.source, filename=path, target=request.target)
        rewrite = rewrite_source(
            request.source, filename=path, target=request.target, unsafe_fixes=request.unsafe
        )
    except DevicefixError as error:
        return {"error": printable(str(error).removeprefix(f"{path}: "))}
    before, after = (_parts(text, request.notebook) for text in (request.source, rewrite.source))
    return {
        "source": rewrite.source,
        "findings": [_shown(finding) for finding in findings],
        "fixed": len(rewrite.fixed),
        "remaining": len(rewrite.remaining),
        "before": [{"cell": cell, "lines": [*map(printable_lines, lines)]} for cell, lines in before],
        "after": [
            {"cell": cell, "lines": [*map(printable_lines, lines)], "changed": _changed(old, lines)}
            for (_, old), (cell, lines) in zip(before, after, strict=True)
        ],
    }


def _shown(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "url": finding.url,
        "message": printable(finding.message),
        "cell": finding.cell,
        "line": finding.location.line,
        "column": finding.location.column,
        "fix": finding.fix.applicability if finding.fix else None,
    }


def _parts(text: str, notebook: bool) -> list[tuple[int | None, list[str]]]:
    """Return the lines of each code cell of a notebook, or those of the whole text."""
    if notebook:
        try:
            cells = enumerate(json.loads(text)["cells"], 1)  # those of all kinds count
            code = ((number, cell["source"]) for number, cell in cells if cell["cell_type"] == "code")
            return [(number, LINE_END.split("".join(source))) for number, source in code]
        except (ValueError, LookupError, TypeError, RecursionError):
            pass  # not a notebook, which is a finding
    return [(None, LINE_END.split(text))]


def _changed(before: list[str], after: list[str]) -> list[int]:
    """Return the numbers of the lines, from 1, that are new or changed."""
    opcodes = Differences(before, after).get_opcodes()
    spans = (range(start + 1, end + 1) for kind, _, _, start, end in opcodes if kind != "equal")
    return [number for span in spans for number in span]
