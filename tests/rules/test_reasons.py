"""Every finding without a safe fix says why, in the examples of all rules and in the fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from corpus_reasons import Reported, reason, without_reason
from helpers import ROOT, analyze

from devicefix.rules.registry import RULES


def _findings() -> Iterator[Reported]:
    codes = {f"{code} {example.name}": example.before for code in RULES for example in RULES[code].INVALID}
    codes |= {str(path): path.read_text(encoding="utf-8") for path in (ROOT / "fixtures").rglob("*.py")}
    for place, code in codes.items():
        for finding in analyze(code).findings:
            safety = finding.safety.value if finding.safety else ""
            yield Reported(finding.code, finding.message, safety, place)


def test_every_finding_without_a_safe_fix_says_why() -> None:
    findings = list(_findings())
    assert sum(finding.safety != "safe" for finding in findings) > 250
    assert list(without_reason(findings)) == []


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (Reported("DF1", "`a` needs CUDA; use `b` (unsafe: only its name says so)", "unsafe"), 0),
        (Reported("DF1", "`a` needs CUDA; use `b`", "unsafe"), 1),
        (Reported("DF1", "`c` needs CUDA; use `d` (not fixed because of line 7)", ""), 0),
        (Reported("DF1", "`c` needs CUDA; use `d`", ""), 1),
        (Reported("DF1", "`c` needs CUDA; add a CPU path", ""), 0),
        (Reported("DF2", "`c` needs CUDA; use `d`", ""), 0),
        (Reported("DF2", "`c` needs CUDA; use it only if CUDA is available", ""), 1),
        (Reported("DF902", "`c` needs CUDA; use it only if CUDA is available", ""), 0),
    ],
)
def test_a_message_without_a_reason(finding: Reported, expected: int) -> None:
    fixed = Reported("DF1", "`x` needs CUDA; use `y`", "safe")
    assert len(list(without_reason([fixed, finding]))) == expected


def test_the_reason_has_no_names() -> None:
    message = "`x` needs CUDA (not fixed because line 7 uses `x`)"
    assert reason(Reported("DF1", message, "")) == "not fixed because … uses …"
    assert reason(Reported("DF1", "`x` needs CUDA; use `y`", "")) == "by hand: use …"
