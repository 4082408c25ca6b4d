"""JSON Lines: the objects of the `json` format, one per line."""

from __future__ import annotations

import json
from collections.abc import Iterator

from devicefix.config.printable import printable_json
from devicefix.report.checked import Checked
from devicefix.report.json import objects


def render(checked: Checked) -> Iterator[str]:
    """Yield the text in pieces."""
    for entry in objects(checked):
        yield printable_json(json.dumps(entry, separators=(",", ":"), ensure_ascii=False)) + "\n"
