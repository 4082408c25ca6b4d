"""Write the table of rooms in architecture.md from their docstrings: run `python docs/rooms.py`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PAGE = Path(__file__).parent / "architecture.md"
PACKAGE = Path(__file__).parents[1] / "devicefix"
TABLE = re.compile(r"^\| Room \|.*\n(?:\|.*\n)*", re.M)

# From top to bottom: a room imports only rooms that come after it.
ROOMS = (
    "cli", "server", "codemod", "playground", "migrate", "verify", "report", "runner", "engine", "rules",
    "devices", "rewrite", "facts", "files", "config",
)  # fmt: skip


def table() -> str:
    """Return the table of rooms in Markdown."""
    lines = ["| Room | Task |", "| --- | --- |", *map(row, ROOMS)]
    return "".join(f"{line}\n" for line in lines)


def row(room: str) -> str:
    """Return the row of a room: its name and the first line of its docstring."""
    module = ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8"))
    summary, *_ = (ast.get_docstring(module) or "").splitlines()
    return f"| `{room}/` | {summary} |"


def with_table(page: str) -> str:
    """Return the text of the page with the current table."""
    return TABLE.sub(lambda _: table(), page, count=1)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
