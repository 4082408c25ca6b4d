"""The scaffold of a new rule: it works as it is written, and takes nothing that exists."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import new_rule
import pytest
from helpers import ROOT


@pytest.mark.slow
def test_the_new_rule_passes_the_tests_of_rules(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "devicefix", tmp_path / "devicefix", ignore=shutil.ignore_patterns("__pycache__"))
    path = new_rule.create("DF198", "some-new-rule", tmp_path / "devicefix" / "rules")
    shutil.copy(ROOT / "tests" / "rules" / "test_rules.py", tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-k", "DF198", "test_rules.py"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
    assert path.name == "some_new_rule.py"
    assert "class SomeNewRule(Rule):" in path.read_text()


@pytest.mark.parametrize(
    ("code", "name", "message"),
    [
        ("DF101", "some-new-rule", "the code DF101 is taken by cuda_call.py"),
        ("DF198", "cuda-call", "the name `cuda-call` is taken by cuda_call.py"),
        ("DF203", "some-new-rule", "the code DF203 is taken by device_value.rule.py"),
        ("DF198", "base", "the file base.py exists already"),
        ("AB101", "some-new-rule", "`AB101` is not a code"),
        ("DF198", "SomeRule", "`SomeRule` is not a name"),
        ("DF198", "../rule", "`../rule` is not a name"),
    ],
)
def test_what_cannot_be_used_is_refused(code: str, name: str, message: str) -> None:
    before = sorted(new_rule.RULES.iterdir())
    with pytest.raises(new_rule.NewRuleError, match=message):
        new_rule.create(code, name)
    assert sorted(new_rule.RULES.iterdir()) == before
