"""The plugin, run by flake8."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

from devicefix.config.resolver import Everywhere
from devicefix.config.settings import Settings
from devicefix.runner.run import check_files
from devicefix.server.flake8 import Plugin

pytestmark = [
    pytest.mark.needs("flake8"),
    pytest.mark.usefixtures("project"),  # away from the configuration of this repository
]

TIED = "import torch\n\nx = torch.ones(2).cuda()\n"
FIXTURES = ROOT / "fixtures"


def flake8(*arguments: str, data: bytes = b"") -> tuple[int, list[str]]:
    """Return the exit status and the lines of flake8."""
    done = subprocess.run(
        [sys.executable, "-m", "flake8", "--isolated", "--select=DF", "-j1", *arguments],
        input=data, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stderr == b""
    return done.returncode, done.stdout.decode(errors="surrogateescape").splitlines()


def checked(*paths: str) -> list[str]:
    """Return the findings of `devicefix check`, each file checked alone, as flake8 prints them."""
    return [
        f"{path}:{finding.line}:{finding.column}: {finding.code} {finding.message}"
        for path in paths
        for outcome in check_files([Path(path)], Everywhere(Settings()))
        for finding in outcome.result.findings
    ]


def test_same_findings_as_check(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(
        "# coding: latin-1\nimport torch\nä = 'ü', torch.ones(2).cuda()\n".encode("latin-1")
    )
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbf" + TIED.replace("\n", "\r\n").encode())
    (tmp_path / "cr.py").write_bytes(TIED.replace("\n", "\r").encode())
    (tmp_path / "wide.py").write_text(
        "import torch\né = '𝔘', torch.ones(\n    2,\n).cuda()\n", encoding="utf-8"
    )
    (tmp_path / "net.py").write_text("class Net:\n    def cuda(self):\n        return self\n")
    (tmp_path / "uses.py").write_text("import torch\nfrom net import Net\n\nnet = Net().cuda()\n")
    (tmp_path / "skipped.py").write_text(f"# devicefix: skip-file\n{TIED}")
    names = sorted(path.name for path in tmp_path.iterdir())
    expected = checked(*names)
    assert len(expected) == 4
    assert flake8(*names) == (1, expected)
    assert flake8("skipped.py", "net.py") == (0, [])


@pytest.mark.slow
def test_same_findings_as_check_in_real_programs() -> None:
    files = sorted(map(str, FIXTURES.rglob("*.py")))[::5]
    expected = [line for line in checked(*files) if " DF901 " not in line]  # which is flake8's E999
    assert len(expected) > 10
    assert flake8("--disable-noqa", *files)[1] == expected


def test_noqa_is_flake8s_affair() -> None:
    Path("some.py").write_text(f"{TIED}y = x.cuda()  # noqa: DF101\nz = x.cuda()  # noqa: DF102\n")
    assert [line.split(":")[1] for line in flake8("some.py")[1]] == ["3", "5"]
    assert [line.split(":")[1] for line in flake8("--disable-noqa", "some.py")[1]] == ["3", "4", "5"]


def test_standard_input() -> None:
    Path("net.py").write_text("class Net:\n    def cuda(self):\n        return self\n")
    uses = b"import torch\nfrom net import Net\n\nnet = Net().cuda()\ntorch.ones(2).cuda()\n"
    assert flake8("-", data=uses)[1] == ["stdin:5:1: DF101 `.cuda()` needs CUDA; use `.to(device)`"]
    (line,) = flake8("--stdin-display-name=uses.py", "-", data=uses)[1]
    assert line.startswith("uses.py:5:1: DF101 ")


def test_settings_are_devicefixs(tmp_path: Path) -> None:
    (tmp_path / "third_party").mkdir()
    for name in ("one.py", "third_party/two.py", "tests.py"):
        (tmp_path / name).write_text(f"{TIED}torch.cuda.synchronize()\n")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.devicefix]\nignore = ["DF101"]\nexclude = ["third_party/"]\n'
        'per-file-ignores = {"tests.py" = ["DF4"]}\n'
    )
    assert [line.split()[:2] for line in flake8(".")[1]] == [["./one.py:4:1:", "DF401"]]


def test_an_error_is_a_finding_and_flake8_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.py").write_text(TIED)
    (tmp_path / "pyproject.toml").write_text("[tool.devicefix]\nselekt = []\n")
    status, (line,) = flake8("one.py")
    assert status == 1 and line.startswith("one.py:1:1: DF000 not checked: ")
    assert line.endswith("has no key 'selekt'; did you mean 'select'?")
    (tmp_path / "pyproject.toml").unlink()
    monkeypatch.setattr("devicefix.server.flake8.check_text", lambda *_: 1 / 0)
    (found,) = Plugin(None, os.fspath(tmp_path / "x" / "one.py"), TIED.splitlines(True)).run()  # type: ignore[arg-type]
    assert found[:2] == (1, 0) and found[2].startswith(
        "DF000 not checked: internal error; please report it: Zero"
    )
