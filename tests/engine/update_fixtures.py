"""Update every fixture's `after` from its `before`: python tests/engine/update_fixtures.py [NAME]..."""

from __future__ import annotations

import sys

import test_fixtures


def update(name: str) -> None:
    """Rewrite one fixture's sources and store the results."""
    folder = test_fixtures.FIXTURES / name
    for file, content in test_fixtures.rewrite(test_fixtures.sources(name, "before")).items():
        path = folder / "after" / file if (folder / "before").is_dir() else folder / "after.py"
        path.write_bytes(content)


for fixture in sys.argv[1:] or test_fixtures.NAMES:
    update(fixture)
