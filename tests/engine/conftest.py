"""The judge of programs and their rewrites, whose machines all tests of this room share."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from meaning import Judge


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """Return a judge. Torch and its libraries are imported once, since its machines are forks."""
    meaning, meaning_run = importlib.import_module("meaning"), importlib.import_module("meaning_run")
    for module in meaning_run._LATER:
        importlib.import_module(module)
    with meaning.Judge() as judge:
        yield judge
