"""The GitHub action: its scripts, run with GitHub's variables."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers import ROOT

TIED = "import torch\n\nx = torch.ones(2).cuda()\n"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="on Windows, GitHub brings the bash that is needed")


class Step(NamedTuple):
    status: int
    log: str
    errors: str
    outputs: dict[str, str]
    summary: str


Run = Callable[..., Step]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs a script of the action in a workspace with one finding."""
    for name in ("workspace", "temp"):
        (tmp_path / name).mkdir()
    workspace = tmp_path / "workspace"
    (workspace / "a b.py").write_text(TIED)
    (workspace / "clean.py").write_text("import torch\n")

    def run(script: str = "check.sh", **inputs: str) -> Step:
        files = {name: tmp_path / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.write_text("")
        environment = {
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
            "HOME": str(tmp_path),
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_WORKSPACE": str(workspace),
            "RUNNER_TEMP": str(tmp_path / "temp"),
            **{name: str(file) for name, file in files.items()},
            **{f"DEVICEFIX_{name.upper()}": value for name, value in inputs.items()},
        }
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        done = subprocess.run(
            [str(ROOT / "action" / script)],
            cwd=workspace, env=environment | kept, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        return Step(
            done.returncode, done.stdout, done.stderr, outputs, files["GITHUB_STEP_SUMMARY"].read_text()
        )

    return run


def test_annotations(run: Run) -> None:
    step = run()
    assert step.status == 1 and step.errors == ""
    (line,) = step.log.splitlines()
    assert line.startswith("::error ") and "line=3," in line and re.search(r"file=[^,]*a b\.py,", line)
    assert step.outputs == {"findings": "1", "exit-code": "1"}
    assert step.summary.rstrip().splitlines()[-1] == "| DF101 | cuda-call | 1 | 1 |"


def test_sarif(run: Run) -> None:
    step = run(format="sarif", fail_on_findings="false")
    assert step.status == 0 and "::error" not in step.log
    assert step.outputs["exit-code"] == "1"
    written = json.loads(Path(step.outputs["sarif-file"]).read_text())
    (result,) = written["runs"][0]["results"]
    assert written["version"] == "2.1.0" and result["ruleId"] == "DF101"


def test_paths_and_arguments_are_words(run: Run, tmp_path: Path) -> None:
    assert run(paths="clean.py").outputs == {"findings": "0", "exit-code": "0"}
    assert "No ties to CUDA found." in run(paths="clean.py").summary
    assert run(paths="a b.py\nclean.py\n", args="--select DF1").outputs["findings"] == "1"
    assert run(args='--exclude "a b.py"').outputs["findings"] == "0"
    assert run(args="--ignore DF1\n--no-cache").status == 0
    step = run(paths="$(touch ran); `touch ran`", args="--exclude '$(touch ran)' *")
    assert step.status == 2
    assert not any(tmp_path.rglob("ran"))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"format": "xml"}, "the input 'format' must be 'annotations' or 'sarif', not 'xml'"),
        ({"args": "--select 'DF1"}, "the input 'args' has unbalanced quotes"),
        ({"args": "--select NO1", "fail_on_findings": "false"}, "devicefix failed with exit status 2"),
    ],
)  # fmt: skip
def test_errors_fail_the_step(run: Run, inputs: dict[str, str], said: str) -> None:
    step = run(**inputs)
    assert step.status == 2
    assert step.log.splitlines()[-1].startswith(f"::error title=devicefix::{said}")


@pytest.mark.slow
def test_install(run: Run) -> None:
    step = run("install.sh")
    assert step.status == 0, step.errors
    command = [step.outputs["devicefix"], "--version"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert version.startswith("devicefix ")
    assert run(devicefix=step.outputs["devicefix"]).outputs["findings"] == "1"


@pytest.mark.slow
def test_no_module_of_the_workspace_runs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workspace is the current folder of each step, and holds a stranger's pull request."""
    for name in ("ensurepip", "json", "pip", "runpy", "subprocess", "venv"):
        (tmp_path / "workspace" / f"{name}.py").write_text("open('../mark', 'a').write(__file__)\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    run("install.sh")  # the environment is made, and pip finds nothing to build with
    assert (tmp_path / "temp" / "devicefix").is_dir()
    assert run().outputs["findings"] == "1"
    assert not (tmp_path / "mark").exists()


@pytest.mark.needs("check_jsonschema")
def test_action_is_valid() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions"]
    done = subprocess.run([*check, str(ROOT / "action.yml")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_scripts_are_given_what_they_read() -> None:
    """Each input reaches a script, which reads no other; other people's actions are pinned."""
    yaml = pytest.importorskip("yaml")
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    given = {name: value for step in action["runs"]["steps"] for name, value in step.get("env", {}).items()}
    scripts = "".join((ROOT / "action" / name).read_text() for name in ("install.sh", "check.sh"))
    assert set(re.findall(r"\$\{?(DEVICEFIX\w*)", scripts)) == set(given)
    assert {f"${{{{ inputs.{name} }}}}" for name in action["inputs"]} < set(given.values())
    used = [step["uses"] for step in action["runs"]["steps"] if "uses" in step]
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in used)
    assert not any("${{" in step.get("run", "") for step in action["runs"]["steps"])


def test_scripts_are_clean() -> None:
    scripts = [str(ROOT / ".ci" / "run"), *sorted(map(str, (ROOT / "action").glob("*.sh")))]
    shellcheck = shutil.which("shellcheck", path=os.path.dirname(sys.executable)) or shutil.which(
        "shellcheck"
    )
    if shellcheck is None:
        pytest.skip("needs shellcheck: pip install -e '.[dev]'")
    subprocess.run([shellcheck, *scripts], check=True)
