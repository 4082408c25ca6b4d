"""The number of simulated GPUs that a program needs, as its requests for missing ones show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_COUNTS = (1, 2, 4, 8, 16)  # the usual numbers of GPUs


@dataclass(frozen=True, slots=True)
class Needed:
    """A number of GPUs to try, since a line requests one that is missing.

    Attributes:
        count: the number.
        index: the index of the GPU that is requested.
        file: the file of the request.
        line: its line.
    """

    count: int
    index: int
    file: str
    line: int


def needed(events: Iterable[dict[str, Any]], count: int) -> Needed | None:
    """Return how many GPUs a run needed; None if none is missing, or if no number of GPUs is enough.

    Args:
        events: the events of the run.
        count: the number of GPUs that it had.
    """
    missing = (event for event in events if event["kind"] == "missing gpu")
    request = max(missing, key=lambda event: int(event["index"]), default=None)
    if request is None:
        return None
    index = int(request["index"])
    enough = next((number for number in _COUNTS if number > max(index, count)), None)
    return None if enough is None else Needed(enough, index, request["file"], request["line"])
