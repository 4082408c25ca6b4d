"""Tests of docs/patterns.md and the table on Lightning: each example, and each program before and after."""

from __future__ import annotations

import re

import pytest
from helpers import ROOT, analyze

from devicefix.model import Finding, Safety
from devicefix.rules.registry import RULES

PATTERNS = "".join((ROOT / "docs" / name).read_text() for name in ("patterns.md", "guide/cloned.md"))
ROW = re.compile(
    r"^\| (?P<example>.+?) \| (?P<codes>—|DF\d{3}(?:, DF\d{3})*) \| \*\*(?P<outcome>\w+)\*\*", re.M
)
ROWS = [
    (match["example"].replace("\\|", "|"), match["codes"], match["outcome"])
    for match in ROW.finditer(PATTERNS)
]
CODE = re.compile(r"`[^`]+`(?:<br>`[^`]+`)*")
EXAMPLES = [row for row in ROWS if CODE.fullmatch(row[0])]
DIFFS = [match[1].splitlines() for match in re.finditer(r"^```diff\n(.*?)^```", PATTERNS, re.M | re.S)]
PREAMBLE = """\
import torch
import torch.nn as nn
import torch.distributed as dist
from lightning import LightningModule, Trainer
from torch.autograd import Variable
from torch.utils.data import DataLoader

"""


def test_every_row_is_read() -> None:
    rows = [line for line in PATTERNS.splitlines() if line.startswith("| ")]
    titles = [line for line in rows if line.startswith(("| Code |", "| --- |", "| Commit |", "| ["))]
    assert len(ROWS) == len(rows) - len(titles)


@pytest.mark.parametrize("code", RULES)
def test_every_rule_has_a_row(code: str) -> None:
    assert any(code in codes for _, codes, _ in ROWS), f"add a row for {code} to docs/patterns.md"


def test_every_row_has_a_rule() -> None:
    assert set(re.findall(r"DF\d{3}", PATTERNS)) <= set(RULES)


@pytest.mark.parametrize(
    ("example", "codes", "outcome"), EXAMPLES, ids=[f"{codes} {code[:50]}" for code, codes, _ in EXAMPLES]
)
def test_examples(example: str, codes: str, outcome: str) -> None:
    lines = [line.removeprefix("`").removesuffix("`") for line in example.split("<br>")]
    wanted = [] if codes == "—" else codes.split(", ")
    extra = any(not RULES[code].default for code in wanted)
    source = PREAMBLE + "\n".join(lines) + "\n"
    result = analyze(source, fix=True, unsafe_fixes=True, select=("DF",) if extra else ())
    if not wanted:
        assert [finding.code for finding in result.findings] == []
    for code in wanted:
        found = [finding for finding in result.findings if finding.code == code]
        assert found, [finding.code for finding in result.findings]
        assert {_outcome(finding) for finding in found} == {outcome}


def _outcome(finding: Finding) -> str:
    return {None: "reported", Safety.SAFE: "fixed", Safety.UNSAFE: "unsafe"}[finding.safety]


@pytest.mark.parametrize("diff", DIFFS, ids=range(len(DIFFS)))
def test_programs_before_and_after(diff: list[str]) -> None:
    before, after = (
        "".join(f"{line[1:]}\n" for line in diff if line[:1] in ("", " ", sign)) for sign in "-+"
    )
    assert analyze(before, fix=True).output == after.encode()
