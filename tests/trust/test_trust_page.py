"""The page on safety: each of its promises about files names the tests that show it."""

from __future__ import annotations

import ast
import re

from helpers import ROOT

PAGE = (ROOT / "docs" / "safety.md").read_text(encoding="utf-8")
PROMISES = PAGE.partition("## How devicefix treats your files\n")[2]
_COMMENT = re.compile(r"<!-- (.*?) -->")


def promises() -> dict[str, list[str]]:
    """Return the paragraphs and list items of the section, each with what its comments name."""
    parts = re.split(r"\n\n|\n(?=- )", PROMISES)
    texts = [part.strip() for part in parts if not part.lstrip().startswith("#")]
    return {_COMMENT.sub("", text).strip(): _COMMENT.findall(text) for text in texts}


def names_in(file: str) -> set[str]:
    """Return the names of the tests in a file."""
    (path,) = (ROOT / "tests").glob(f"*/{file}")
    tree = ast.parse(path.read_bytes())
    return {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_each_promise_names_its_test() -> None:
    found = promises()
    assert len(found) > 15
    assert not [text for text, named in found.items() if not named]
    for text, named in found.items():
        for name in named:
            if name != "no promise":
                file, _, test = name.partition("::")
                assert test.startswith("test_") and test in names_in(file), (text, name)


def test_what_is_no_promise() -> None:
    free = [text for text, named in promises().items() if "no promise" in named]
    assert len(free) == 2
