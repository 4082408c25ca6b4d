"""The codemod for LibCST, run by LibCST's own command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import libcst
import pytest
from helpers import Cli
from libcst.codemod import CodemodContext, CodemodTest

from devicefix.codemod import DeviceAgnostic

TIED = """\
# A module.
import torch
import apex

x = torch.ones(1).cuda()  # kept
y = x.type(torch.cuda.HalfTensor)
"""


def codemod(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "libcst.tool", "codemod", "-x", "--no-format", "--hide-progress"]
    command += ["devicefix.codemod.DeviceAgnostic", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_it_writes_what_rewrite_writes(tmp_path: Path, cli: Cli) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tied.py").write_text(TIED)
        (tmp_path / name / "free.py").write_text("import os\n")
    done = codemod(tmp_path, "one")
    assert done.returncode == 0, done.stderr
    assert cli("rewrite", "--in-place", "--exit-zero", tmp_path / "two").exit_code == 0
    assert (tmp_path / "one" / "free.py").read_text() == "import os\n"
    after = (tmp_path / "one" / "tied.py").read_text()
    assert after == (tmp_path / "two" / "tied.py").read_text() != TIED
    assert f"{tmp_path / 'one' / 'tied.py'}:3:1: DF902 " in done.stderr  # what remains is a warning


def test_its_options_are_those_of_rewrite(tmp_path: Path) -> None:
    file = tmp_path / "tied.py"
    file.write_text(TIED)
    assert codemod(tmp_path, "--select", "DF3", "tied.py").returncode == 0
    assert ".cuda()" in file.read_text()
    assert "torch.HalfTensor" in file.read_text()
    done = codemod(tmp_path, "--select", "DF999", "tied.py")
    assert done.returncode == 2
    assert "argument --select: no rule has the code or name 'DF999'" in done.stderr


def test_a_wrong_configuration_skips_the_file(tmp_path: Path) -> None:
    (tmp_path / "devicefix.toml").write_text("jobs = 0\n")
    file = tmp_path / "tied.py"
    file.write_text(TIED)
    done = codemod(tmp_path, "tied.py")
    assert "devicefix.toml:1:1: jobs: must be a positive integer" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert file.read_text() == TIED


def test_the_transform_keeps_the_rest() -> None:
    context = CodemodContext(filename="module.py")
    tree = libcst.parse_module("x = 1  # no torch\r\n")
    assert DeviceAgnostic(context).transform_module(tree).code == tree.code
    tied = libcst.parse_module("import torch\r\nx = torch.ones(1).cuda() # 1\r\n")
    code = DeviceAgnostic(context).transform_module(tied).code
    assert code.startswith("import torch\r\n") and code.endswith("x = torch.ones(1).to(device) # 1\r\n")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n# end"])
def test_statements_that_do_not_change_are_the_same_nodes(newline: str, end: str) -> None:
    code = (
        "# -*- coding: latin-1 -*-\n# \xe9\nimport torch\n\n\ndef first():\n\tpass\n\t# last\n\n# above\n"
        "x = torch.ones(1).cuda()\n# above\ny = 1; z = 2\n"
        f"if torch.cuda.is_available():\n\tx.cuda()\n# above\nkept_4 = 3{end}"
    )
    tree = libcst.parse_module(code.replace("\n", newline).encode("latin-1"))
    # `transform_module` copies the tree first.
    made = DeviceAgnostic(CodemodContext(filename="module.py")).transform_module_impl(tree)
    assert made.deep_equals(libcst.parse_module(made.bytes))
    torch, first, x, both, guarded, last = tree.body
    new_torch, device, new_first, new_x, new_both, new_guarded, new_last = made.body
    assert new_torch is torch and new_first is first and new_both is both
    assert not {new_x, new_guarded} & {x, guarded}
    assert "device = torch.device" in made.code_for_node(device)
    assert (new_last is last) == bool(end)  # without a line end it is parsed again
    assert made.encoding == tree.encoding


class TestWithLibcst(CodemodTest):
    """The way that LibCST's users test their codemods."""

    TRANSFORM = DeviceAgnostic

    def test_moves(self) -> None:
        before = "import torch\n\nx = torch.ones(1).cuda()\n"
        after = (
            "import torch\n\n"
            'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "x = torch.ones(1).to(device)\n"
        )
        self.assertCodemod(before, after)


def test_the_help_names_the_options(tmp_path: Path) -> None:
    shown = codemod(tmp_path, "--help").stdout
    for option in ("--unsafe-fixes", "--select", "--ignore", "--target"):
        assert option in shown
