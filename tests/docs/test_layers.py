"""The order of the rooms, read from every import: those in functions and under TYPE_CHECKING included."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from rooms import ROOMS  # noqa: E402 (the one definition of the order)

# The modules outside of the rooms, each by the room that it comes before.
OUTSIDE = {"__main__": "cli", "__init__": "verify", "api": "verify", "testing": "engine", "plugins": "rules"}
MOST_OUTSIDE, MOST_ROOMS = 6, 15

# The imports in functions: what each kind saves, and the modules that are imported late. Everything else is
# imported at the top of a module.
LATE = {
    "LibCST, which only a fix needs": ("rewrite.",),
    "rules and facts, which only a file that passes the prefilter needs": (
        "devices.", "engine.", "facts", "rules.",
    ),
    "parts of files and configurations that most runs don't have": (
        "config.globs", "config.ignore", "files.notebook.", "files.markdown.",
    ),
    "dask, processes, the cache, and files beside those that are checked": (
        "runner.cluster", "runner.processes", "runner.cache", "runner.configurations", "runner.imports",
    ),
}  # fmt: skip
# A command, the API and the tests of plugins load what they do when they are called: `--version` needs none.
ON_CALL = ("__init__", "api", "cli", "testing")


def order() -> list[str]:
    """Return the rooms and the modules outside of them, from top to bottom."""
    found: list[str] = []
    for room in ROOMS:
        found += [module for module, before in OUTSIDE.items() if before == room]
        found.append(room)
    return [*found, "model"]


@cache
def modules() -> Mapping[str, Path]:
    """Return the files of the package by the names of their modules."""
    files = (ROOT / "devicefix").rglob("*.py")
    return {name(file): file for file in files if file.parent.name != "bootstrap"}


def name(file: Path) -> str:
    """Return the dotted name of the module in a file."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str) -> str:
    """Return the room of a module, or its own name if it is outside of the rooms."""
    return module.split(".")[1] if "." in module else "__init__"


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each module of ours that a file imports, wherever it does."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            yield from (
                (node.lineno, alias.name) for alias in node.names if alias.name.startswith("devicefix")
            )
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: a relative import"
            base = node.module or ""
            if base.partition(".")[0] == "devicefix":
                inner = (f"{base}.{alias.name}" for alias in node.names)
                yield from (
                    (node.lineno, statement if statement in modules() else base) for statement in inner
                )


def test_imports_lead_down() -> None:
    rank = {each: number for number, each in enumerate(reversed(order()))}
    up = [
        f"{file}:{line}: {room(module)} imports {imported}"
        for module, file in modules().items()
        for line, imported in imports(file)
        if room(imported) != room(module) and rank[room(imported)] >= rank[room(module)]
    ]
    assert not up, "\n".join(up)
    assert len(modules()) > 200


def test_no_module_is_part_of_a_cycle() -> None:
    graph = {module: {found for _, found in imports(file)} for module, file in modules().items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as problem:
        pytest.fail(" → ".join(problem.args[1]))


def test_the_package_is_easy_to_see() -> None:
    top = ROOT / "devicefix"
    assert {file.stem for file in top.glob("*.py")} == {*OUTSIDE, "model"}
    assert len({*OUTSIDE, "model"} - {"__init__", "__main__"}) <= MOST_OUTSIDE
    assert len(ROOMS) <= MOST_ROOMS
    assert {path.parent.name for path in top.glob("*/__init__.py")} == set(ROOMS)


def late(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each module of ours that a function of a file imports."""
    tree = parsed(file)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    lines = {
        node.lineno
        for function in ast.walk(tree)
        if isinstance(function, functions)
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    yield from ((line, found) for line, found in imports(file) if line in lines)


def test_functions_import_only_what_pays_at_start_up() -> None:
    allowed = tuple(f"devicefix.{start}" for starts in LATE.values() for start in starts)
    for module, file in modules().items():
        if room(module) not in ON_CALL and not module.startswith("devicefix.verify.runtime"):
            for line, found in late(file):
                assert found.startswith(allowed), f"{file}:{line}: {found}"


def test_the_runtime_imports_nothing_else() -> None:
    """It runs inside the user's program, whose Python may lack what devicefix needs."""
    for module, file in modules().items():
        if module.startswith("devicefix.verify.runtime"):
            assert all(found.startswith("devicefix.verify.runtime") for _, found in imports(file)), module
