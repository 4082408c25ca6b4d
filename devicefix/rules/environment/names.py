"""The names of packages."""

from __future__ import annotations

import re


def normalized(name: str) -> str:
    """Return the normalized name: https://packaging.python.org/specifications/name-normalization."""
    return re.sub(r"[-_.]+", "-", name).lower()
