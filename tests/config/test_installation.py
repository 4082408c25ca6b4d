"""Tests of the commands that install an extra: they work, wherever devicefix was installed from."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT, Git, ProjectFolder

from devicefix.config import installation, toml
from devicefix.config.installation import install_command

PROJECT: dict[str, Any] = toml.parse((ROOT / "pyproject.toml").read_bytes())[1]["project"]
GIT = "git+https://github.com/devicefix/devicefix"
HERE = ROOT.as_uri()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the metadata of a devicefix that is found before the real one."""
    folder = tmp_path / "devicefix-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: devicefix\nVersion: 0.1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return folder


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, f"'devicefix[report] @ {GIT}'"),
        ({"url": HERE, "dir_info": {}}, f"'{ROOT}[report]'"),
        ({"url": HERE, "dir_info": {"editable": True}}, f"-e '{ROOT}[report]'"),
        ({"url": "file:///not/there", "dir_info": {"editable": True}}, f"'devicefix[report] @ {GIT}'"),
        ({"url": GIT[4:], "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}, f"'devicefix[report] @ {GIT}'"),
        (
            {"url": "https://a.b/fork", "vcs_info": {"vcs": "git", "requested_revision": "v1"}},
            "'devicefix[report] @ git+https://a.b/fork@v1'",
        ),
        ({"url": HERE, "vcs_info": {"vcs": "git"}}, f"'{ROOT}[report]'"),
        ({"url": "file:///not/there", "vcs_info": {"vcs": "git"}}, f"'devicefix[report] @ {GIT}'"),
        ({"url": "https://a.b/c.whl", "archive_info": {}}, "'devicefix[report] @ https://a.b/c.whl'"),
        ({"url": "file:///not/there.whl", "archive_info": {}}, f"'devicefix[report] @ {GIT}'"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="quotes as in POSIX shells")
def test_the_origin_decides(origin: Any, expected: str, installed: Path) -> None:
    if origin is not None:
        (installed / "direct_url.json").write_text(json.dumps(origin))
    assert install_command("report") == f"pip install {expected}"


def test_a_path_is_quoted(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    (installed / "direct_url.json").write_text(json.dumps({"url": folder.as_uri(), "dir_info": {}}))
    assert re.fullmatch(r"pip install (['\"]).*with space\[report\]\1", install_command("report"))


def test_the_tool_that_installed_decides(installed: Path, tmp_path: Path) -> None:
    (installed / "INSTALLER").write_text("uv\n")
    assert install_command("report").startswith("uv pip install ")
    (tmp_path / "uv-receipt.toml").touch()
    assert install_command("report").startswith("uv tool install --force ")
    (tmp_path / "pipx_metadata.json").touch()
    assert install_command("report").startswith("pipx install --force ")


def test_the_address_is_that_of_the_project() -> None:
    assert PROJECT["urls"]["Source"] == installation.SOURCE
    assert f"\n  published: {str(installation.PUBLISHED).lower()}" in (ROOT / "mkdocs.yml").read_text()


def test_every_extra_exists() -> None:
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / "devicefix").rglob("*.py")]
    calls = re.compile(r"(?:missing_package|install_command)\(.*[\"'](\w+)[\"']\)|check_packages\(\"(\w+)\"")
    named = {extra for text in texts for match in calls.findall(text) for extra in match if extra}
    assert {"dask", "report", "server", "verify", "watch"} <= named <= set(PROJECT["optional-dependencies"])


@pytest.mark.slow
def test_the_command_works(project: ProjectFolder, git: Git) -> None:
    """Install from a folder, from an editable one, and from a repository, one after the other."""
    venv = project / "venv"
    scripts = venv / ("Scripts" if os.name == "nt" else "bin")
    environment = {**os.environ, "PIP_PYTHON": str(venv)}
    environment["PATH"] = (
        f"{scripts}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    environment.pop("PYTHONPATH", None)

    def run(command: str | list[str]) -> subprocess.CompletedProcess[str]:
        shell = isinstance(command, str)
        return subprocess.run(command, shell=shell, env=environment, capture_output=True, text=True)

    sources = project / "sources"
    shutil.copytree(ROOT / "devicefix", sources / "devicefix")
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, sources)
    git.commit_all(folder=sources)
    assert run([sys.executable, "-m", "venv", "--without-pip", str(venv)]).returncode == 0
    for origin in ([str(sources)], ["-e", str(sources)], [f"git+{sources.as_uri()}"]):
        done = run(["pip", "install", "--quiet", *origin])
        assert done.returncode == 0, done.stderr
        refused = run([str(scripts / "devicefix"), "check", "--watch"])
        hint = refused.stderr.strip().removeprefix("Error: check --watch needs watchfiles: ")
        assert str(sources) in hint
        assert (done := run(hint)).returncode == 0, f"{hint}\n{done.stderr}"
        assert run([str(scripts / "python"), "-c", "import watchfiles"]).returncode == 0
        assert run(["pip", "uninstall", "--quiet", "--yes", "devicefix", "watchfiles"]).returncode == 0
