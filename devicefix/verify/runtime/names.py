"""Names in torch, as `names.ini` lists them."""

from __future__ import annotations

from configparser import ConfigParser
from functools import cache
from pathlib import Path


@cache
def names(group: str, kind: str) -> tuple[str, ...]:
    """Return the names of a kind.

    Args:
        group: the name of its section.
        kind: its name there.
    """
    return tuple(_all()[group][kind].split())


@cache
def _all() -> ConfigParser:
    parser = ConfigParser()
    parser.read(Path(__file__).with_suffix(".ini"), encoding="utf-8")
    return parser
