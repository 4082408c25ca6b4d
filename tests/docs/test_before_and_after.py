"""Tests of docs/before-and-after.md: each program becomes what the page shows."""

from __future__ import annotations

import re

import pytest
from helpers import ROOT, analyze

PAGE = (ROOT / "docs" / "before-and-after.md").read_text("utf-8")
SHOWN = re.compile(r"^## (?P<title>.+?)\n.*?^```diff\n(?P<diff>.*?)^```", re.M | re.S)
SHAPES = {match["title"]: match["diff"].splitlines() for match in SHOWN.finditer(PAGE)}


def text(lines: list[str], *, sign: str) -> str:
    return "".join(f"{line[1:]}\n" for line in lines if line[:1] in ("", " ", sign))


def test_every_program_of_the_page_is_read() -> None:
    assert len(SHAPES) == PAGE.count("```diff") == PAGE.count("\n## ") == 10


@pytest.mark.parametrize("title", SHAPES)
def test_the_page_shows_what_the_rewrite_does(title: str) -> None:
    before, after = (text(SHAPES[title], sign=sign) for sign in "-+")
    output = analyze(before, fix=True).output
    assert output is not None
    assert output.decode() == after
