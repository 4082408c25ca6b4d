"""Tests of README.md: its program, rules and picture are those of the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, Cli, devicefix

from devicefix.rules.categories import CATEGORIES

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
(DIFF,) = re.findall(r"^```diff\n(.*?)^```", TEXT, re.M | re.S)
BEFORE = "".join(f"{line[1:]}\n" for line in DIFF.splitlines()[4:] if line[:1] != "+")
DATA = """
import torch

def batches():
    yield torch.randn(4, 784), torch.randint(10, (4,))
"""
SAVED = "import torch\n\ntorch.save(torch.nn.Linear(784, 10).state_dict(), 'model.pt')\n"


def test_the_diff_is_the_one_that_check_prints(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BEFORE)
    (tmp_path / "data.py").write_text(DATA)
    shown = cli("check", "--diff", "train.py").stdout
    assert [line.rstrip() for line in shown.splitlines()] == DIFF.splitlines()


@pytest.mark.slow
@pytest.mark.needs("psutil", "torch")
def test_the_program_runs_on_a_cpu(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BEFORE)
    (tmp_path / "data.py").write_text(DATA)
    subprocess.run([sys.executable, "-c", SAVED], cwd=tmp_path, check=True)
    done = devicefix("verify", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_lists_the_categories_of_rules() -> None:
    rows = re.findall(r"^\| (DF\d) \| (.*?) \| (.*?) \|$", TEXT, re.M)
    assert rows == [tuple(each) for each in CATEGORIES]


def test_it_is_short() -> None:
    prose = re.sub(r"^```.*?^```|\||---", "", TEXT, flags=re.M | re.S)
    assert len(prose.split()) <= 600


def test_the_picture_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text and styles are those of `python docs/picture.py`; the rest depends on the version of rich."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    picture = __import__("picture")
    old = picture.PICTURE.read_text(encoding="utf-8")
    texts = [re.findall(r"<text .*?</text>|^.*-r\d+ \{.*$", svg, re.M) for svg in (old, picture.record())]
    assert len(texts[0]) > 20
    assert texts[0] == texts[1], "run `python docs/picture.py`"
