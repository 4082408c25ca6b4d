"""Tests of links: on GitHub, they lead to files of the repository, and in the site to pages."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from posixpath import join, normpath
from typing import Any

import pytest
from helpers import ROOT

FOLDERS = ("docs", "skills", "benchmarks", "fixtures")
PAGES = sorted([*ROOT.glob("*.md"), *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md"))])
OWN = re.compile(r"https://github\.com/devicefix/devicefix/(?:blob|tree)/main/")
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.M | re.S)


def links(page: Path) -> list[str]:
    """Return where the links of a page to files of the repository lead, relative to its root."""
    found = re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", page.read_text(encoding="utf-8")))
    name = page.relative_to(ROOT).as_posix()
    own = [OWN.sub("", link) for link in found if OWN.match(link)]
    local = [link for link in found if "://" not in link]
    return own + [normpath(name + link if link[0] == "#" else join(name, "..", link)) for link in local]


@cache
def committed() -> frozenset[str]:
    """Return the files of the repository and their folders; without git, all that exist."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    files = listed.stdout.split("\0")[:-1]
    if listed.returncode:
        files = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*")]
    parents = {parent.as_posix() for file in files for parent in Path(file).parents}
    return frozenset(files) | parents


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_committed_files_and_their_headings(page: Path) -> None:
    for link in links(page):
        name, _, heading = link.partition("#")
        assert name in committed(), link
        if heading:
            assert heading in anchors((ROOT / name).read_text(encoding="utf-8")), link


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page, of which GitHub alone keeps a last hyphen."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-").rstrip("-") for heading in headings}


def test_the_links_are_read() -> None:
    assert len(PAGES) > 30
    assert sum(map(len, map(links, PAGES))) > 120


# -- the site ------------------------------------------------------------------------------------------


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(ROOT / "docs")
    return __import__("hooks")


@pytest.mark.parametrize(
    ("page", "link", "shown"),
    [
        ("guide/library.md", "../../devicefix/rules/unused_noqa.py", "../rules/DF001.md"),
        ("index.md", "../devicefix/rules/config_file", "rules/DF905.md"),
        ("api.md", "../devicefix/config/keys.toml", "configuration.md"),
        ("adding-a-rule.md", "../README.md#rules", "rules/index.md"),
        ("ci.md", "../action.yml", "https://github.com/devicefix/devicefix/blob/main/action.yml"),
        (
            "plugins.md",
            "../examples/plugin",
            "https://github.com/devicefix/devicefix/tree/main/examples/plugin",
        ),
        ("guide/cloned.md", "../migrate.md#keep-the-changes", "../migrate.md#keep-the-changes"),
    ],
)
def test_the_site_leads_to_generated_pages(hooks: Any, page: str, link: str, shown: str) -> None:
    assert hooks.linked(f"[a]({link}), b", page) == f"[a]({shown}), b"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_link_with_the_code_of_a_rule_leads_to_this_rule(hooks: Any, page: Path) -> None:
    found = re.findall(r"\[`?(DF\d{3})`?\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    if page.is_relative_to(ROOT / "docs"):
        name = page.relative_to(ROOT / "docs").as_posix()
        pages = [re.findall(r"DF\d{3}", hooks.linked(f"[]({link})", name)) for _, link in found]
        assert pages == [[code] for code, _ in found]
    else:
        assert not found
