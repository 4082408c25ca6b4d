"""Tests of docs/architecture.md: its table is current, and the code that it names exists."""

from __future__ import annotations

import ast
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", PAGE)))
STEPS = re.findall(r"^\d+\. `(\S+\.py)` `(\w+)`", PAGE, re.M)


def test_the_table_of_rooms_is_current() -> None:
    spec = spec_from_file_location("rooms", ROOT / "docs" / "rooms.py")
    assert spec is not None and spec.loader is not None
    rooms = module_from_spec(spec)
    spec.loader.exec_module(rooms)
    assert rooms.with_table(PAGE) == PAGE, "run `python docs/rooms.py`"
    packages = {path.parent.name for path in (ROOT / "devicefix").glob("*/__init__.py")}
    assert packages == set(rooms.ROOMS)


@pytest.mark.parametrize("path", PATHS)
def test_paths_exist(path: str) -> None:
    assert (ROOT / path).exists() or (ROOT / "devicefix" / path).exists()


@pytest.mark.parametrize(("path", "name"), STEPS)
def test_steps_name_functions_and_classes(path: str, name: str) -> None:
    tree = ast.parse((ROOT / "devicefix" / path).read_text(encoding="utf-8"))
    defined = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    assert name in defined


def test_the_walk_is_short() -> None:
    assert 10 <= len(STEPS) <= 15
