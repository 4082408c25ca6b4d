"""Print the section of a version in CHANGELOG.md: python scripts/release_notes.py 0.1.0."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def notes(version: str, changelog: str) -> str:
    """Return the text below the heading of a version, which must have a date.

    Raises:
        ValueError: there is no such section, or nothing in it.
    """
    heading = rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$"
    found = re.search(rf"{heading}\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if found is None or not found[1].strip():
        raise ValueError(f"CHANGELOG.md has no section `## {version} (YYYY-MM-DD)` with changes")
    return found[1].strip() + "\n"


def main() -> None:
    """Print the notes, or the error."""
    try:
        print(notes(sys.argv[1], CHANGELOG.read_text(encoding="utf-8")), end="")
    except ValueError as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
