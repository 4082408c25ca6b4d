"""The parts of a release: its metadata, its pages, its notes, and its source distribution."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import ROOT
from release_notes import notes

from devicefix.config import toml
from devicefix.config.version import __version__

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PUBLISHED = "\n  published: true" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
INSTALLED = re.compile(r"(?:pip|pipx|uv tool) install (?:-\S+ )*(?:['\"]?devicefix|git\+)[^\n]*|uvx [^\n]*")
ON_GITHUB = re.compile(r"[a-z ]+ install (git\+\S+/devicefix|(['\"])devicefix\[\w+\] @ git\+\S+/devicefix\2)")
NAMED = re.compile(r"rev: (?!main\b)\S+|devicefix/devicefix@(?!main\b)\S+")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def project() -> dict[str, Any]:
    table: dict[str, Any] = toml.parse((ROOT / "pyproject.toml").read_bytes())[1]["project"]
    return table


def names_a_release(text: str) -> list[str]:
    """Return what works only when devicefix is on PyPI and a tag exists."""
    installs = [match[0] for match in INSTALLED.finditer(text) if not ON_GITHUB.match(match[0])]
    return installs + [match[0] for match in NAMED.finditer(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_what_works_without_a_release(page: Path) -> None:
    if PUBLISHED and page == ROOT / "README.md":
        pytest.skip("it names the release")
    assert names_a_release(page.read_text(encoding="utf-8")) == []


def test_the_program_names_what_works_without_a_release() -> None:
    if PUBLISHED:
        pytest.skip("it names the release")
    folders = [ROOT / name for name in ("action", "devicefix", "skills")]
    files = [ROOT / "action.yml", *(file for folder in folders for file in folder.rglob("*"))]
    read = [file for file in files if file.is_file() and file.suffix not in (".pyc", ".wasm")]
    assert len(read) > 200
    found = {file: names_a_release(file.read_text(encoding="utf-8", errors="replace")) for file in read}
    assert {file: names for file, names in found.items() if names} == {}


# -- the switch ----------------------------------------------------------------------------------------


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(ROOT / "docs")
    return __import__("hooks")


@pytest.fixture
def config(hooks: Any) -> Any:
    from mkdocs.config import load_config

    return load_config(str(ROOT / "mkdocs.yml"))


def test_the_documentation_names_releases_with_one_setting(hooks: Any, config: Any) -> None:
    def shown_pages() -> str:
        return "".join(hooks.on_page_markdown(text, page=page, config=config) for text in texts)

    texts = [each.read_text(encoding="utf-8") for each in PAGES]
    page = SimpleNamespace(file=SimpleNamespace(src_uri="index.md"))
    config.extra["published"] = False
    assert "rev: main" in shown_pages()
    config.extra["published"] = True
    shown = shown_pages()
    assert not re.search(r"pip install [^\n]*git\+|rev: main|@main|PyPI yet", shown)
    assert f"uses: devicefix/devicefix@v{__version__}\n" in shown
    assert f"rev: v{__version__}\n" in shown
    assert "pip install devicefix\n" in shown and "pip install 'devicefix[verify]'\n" in shown


def test_the_readme_agrees_with_the_setting(hooks: Any, config: Any) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert config.extra["published"] == PUBLISHED
    if PUBLISHED:
        assert text == hooks.released(text), "let the README name the release as in hooks.released"
    else:
        assert text != hooks.released(text)


# -- metadata ------------------------------------------------------------------------------------------


def test_the_versions_of_python_are_those_that_the_workflow_tests() -> None:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    tested = set(workflow["jobs"]["tests"]["strategy"]["matrix"]["python"])
    prefix = "Programming Language :: Python :: "
    named = {line.removeprefix(prefix) for line in project()["classifiers"] if line.startswith(prefix)}
    assert {version for version in named if "." in version} <= tested


def test_the_version_is_in_one_place() -> None:
    assert "version" in project()["dynamic"]
    files = [*PAGES, ROOT / "pyproject.toml", ROOT / "action.yml", ROOT / "mkdocs.yml"]
    naming = re.compile(rf"(?:devicefix|^version)\W{{1,6}}v?{re.escape(__version__)}", re.M)
    assert [file.name for file in files if naming.search(file.read_text(encoding="utf-8"))] == []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the source distribution, and the wheel made of it."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "-o", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def metadata(built: Path) -> Message:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return message_from_bytes(archive.read(f"devicefix-{__version__}.dist-info/METADATA"))


@pytest.mark.slow
def test_pypi_shows_the_readme_of_the_release_with_absolute_links(metadata: Message, hooks: Any) -> None:
    text = str(metadata.get_payload())
    source = (ROOT / "README.md").read_text(encoding="utf-8")
    links, sources = LINK.findall(text), LINK.findall(source)
    assert len(links) == len(sources) > 10
    assert all(link.startswith("https://") for link in links)
    assert LINK.sub("", text).strip() == LINK.sub("", hooks.released(source)).strip()
    tree = f"https://github.com/devicefix/devicefix/blob/v{__version__}/"
    site = "https://devicefix.github.io/devicefix/"
    for link, relative in zip(links, sources, strict=True):
        if link.startswith(tree):
            assert link == tree + relative and (ROOT / relative.partition("#")[0]).exists()
        elif link.startswith(site):
            assert (ROOT / "docs" / link.removeprefix(site)).is_file()


@pytest.mark.slow
def test_metadata(metadata: Message) -> None:
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "MIT" and metadata["License-File"] == "LICENSE"
    urls = {line.partition(",")[0] for line in metadata.get_all("Project-URL", [])}
    assert urls == {"Documentation", "Source", "Issues", "Changelog"}


@pytest.mark.slow
def test_the_source_distribution_holds_what_git_does(built: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("this is no checkout")
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        held = {member.name.partition("/")[2] for member in files.getmembers()}
    tracked = {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).exists()}
    assert tracked <= held


# -- the changelog -------------------------------------------------------------------------------------


def test_the_changelog_has_a_section_for_each_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", heading) for heading in headings[1:])
    sections = re.findall(r"^### (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert set(sections) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_notes_of_a_release_are_its_section() -> None:
    changelog = "## Unreleased\n\n## 0.2.0 (2026-12-01)\n\n### Added\n\n- b\n\n## 0.1.0 (2026-11-01)\n\n- a\n"
    changelog += "\n## 0.0.1 (2026-10-01)\n"
    assert notes("0.2.0", changelog) == "### Added\n\n- b\n"
    assert notes("0.1.0", changelog) == "- a\n"
    for version in ("0.3.0", "0.2", "0.0.1", "Unreleased"):
        with pytest.raises(ValueError, match="has no section"):
            notes(version, changelog)


# -- workflows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_are_valid(workflow: Path) -> None:
    pytest.importorskip("check_jsonschema")
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*check, str(workflow)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_no_checks_of_their_own(workflow: Path) -> None:
    """`.ci/run` has the commands, so that a contributor runs the same ones."""
    text = workflow.read_text(encoding="utf-8")
    assert not re.search(r"^(?!\s*#).*\b(pytest|ruff|mypy|nox)\b", text, re.M)
    assert set(re.findall(r"\.ci/run (\w+)", text)) <= {"lint", "test"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned(workflow: Path) -> None:
    uses = re.findall(r"uses: (\S+)(.*)", workflow.read_text(encoding="utf-8"))
    assert all(re.search(r"@[0-9a-f]{40}$", action) and re.match(r" # v\d", tag) for action, tag in uses)
