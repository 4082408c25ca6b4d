"""Fixes as plain text, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers import replaced
from properties import run_one

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project
from devicefix.files.text import parse
from devicefix.rules.base import Rule
from devicefix.rules.registry import RULES


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES.values() if rule.INVALID and not rule.needs_run], ids=lambda r: r.code
)
def test_the_replacements_of_one_fix_are_the_fix(rule: type[Rule]) -> None:
    """Apply each fix alone, by lines and columns: the result parses, and the only fix gives the rewrite."""
    selected = ("DF",) if rule.code == "DF001" else (rule.code,)
    settings = Settings(select=selected, target=rule.targets[0], unsafe_fixes=True, replacements=True)
    count = 0
    for example in rule.INVALID:
        data = example.before.encode()
        findings = run_one(data, settings).findings
        fixes = [finding.fix.replacements for finding in findings if finding.fix]
        after = [replaced(example.before, fix) for fix in fixes if fix]
        for each in after:
            parse(each)
        if len(after) == len(fixes) == 1:
            assert run_one(data, replace(settings, fix=True)).output == after[0].encode()
        count += len(findings)
    assert count


def test_replacements_are_what_a_rewrite_makes() -> None:
    text = '\ufeffimport torch\r\n\r\nx = make("é", net.cuda(), torch.cuda.FloatTensor(3))\r\n'
    settings = Settings(replacements=True)
    (first, second) = check_file(text.encode(), "module.py", settings, Project()).findings
    assert first.fix and second.fix
    one = replaced(text[1:], first.fix.replacements)
    assert one == (
        'import torch\r\n\r\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\r\n\r\n'
        'x = make("é", net.to(device), torch.cuda.FloatTensor(3))\r\n'
    )
    other = check_file(text.encode(), "module.py", replace(settings, fix=True, select=("DF3",)), Project())
    assert other.output == f"\ufeff{replaced(text[1:], second.fix.replacements)}".encode()
