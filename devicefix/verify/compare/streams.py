"""Event streams: what each process of a run recorded."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

Event = dict[str, Any]
Value = dict[str, Any]
Key = tuple[str, int, str]  # file, line, what
Move = tuple[str, int, str, str]  # file, line, device, device that it moves to
Observations = list[tuple[int, Value]]  # positions in the run, and values


@dataclass(slots=True)
class Stream:
    """The events of one process.

    Attributes:
        name: the name of the process.
        seen: the observations that were recorded one by one.
        ranges: the observations that were recorded as ranges, by the number of the last one in each.
        kinds: the kinds of random draws, in the order in which they first occurred.
        drawn: the number of the kind of each random draw.
        moves: the ways in which a line moves tensors from a device to another one, and the first position.
        operations: how many operations ran on each device, if recorded.
        error: the first error, if any.
        ended: whether the process ended regularly.
        last: the position of the last event.
    """

    name: str = ""
    seen: dict[Key, Observations] = field(default_factory=lambda: defaultdict(list))
    ranges: dict[Key, dict[int, tuple[int, Event]]] = field(default_factory=lambda: defaultdict(dict))
    kinds: list[tuple[int, Event]] = field(default_factory=list)
    drawn: list[int] = field(default_factory=list)
    moves: dict[Move, tuple[int, list[list[str]]]] = field(default_factory=dict)
    operations: Event | None = None
    error: Event | None = None
    ended: bool = False
    last: int = 0

    def add(self, position: int, event: Event) -> None:
        """Add the event at a position of the run."""
        kind = event["kind"]
        self.last = position
        if kind == "seen":
            self._add_observation(position, event)
        elif kind == "draw":
            self.kinds.append((position, event))
        elif kind == "drawn":
            self.drawn += event["numbers"]
        elif kind == "move":
            key = event["file"], event["line"], event["source"], event["target"]
            self.moves.setdefault(key, (position, []))[1].append(event["options"])
        elif kind == "operations":
            self.operations = event
        elif kind == "error":
            self.error = self.error or event
        elif kind == "ended":
            self.ended = True

    def _add_observation(self, position: int, event: Event) -> None:
        key = (event["file"], event["line"], event["what"])
        if "until" in event:
            self.ranges[key][event["until"]] = (position, event)
        else:
            self.seen[key].append((position, event["value"]))

    @property
    def complete(self) -> bool:
        """Return whether the process ended regularly, so that no event is missing."""
        return self.ended and self.error is None

    def count(self, key: Key) -> int:
        """Return how many observations a line made."""
        return max(self.ranges[key]) if key in self.ranges else len(self.seen.get(key, ()))

    def observations(self, key: Key) -> Observations:
        """Return the observations of a line that were recorded one by one."""
        return self.seen.get(key, [])

    def sequence(self) -> list[tuple[int, Event]]:
        """Return all recorded random draws, each with the position of the newest kind at that moment."""
        kinds = {event["number"]: (position, event) for position, event in self.kinds}
        positions = accumulate((kinds[number][0] for number in self.drawn), max)
        return [(position, kinds[number][1]) for position, number in zip(positions, self.drawn, strict=True)]

    def first(self) -> tuple[Key, int, Value] | None:
        """Return the first observation, or None."""
        for key, observations in self.seen.items():
            return key, *observations[0]
        return None


def streams_of(events: list[Event]) -> dict[tuple[str, int], Stream]:
    """Group the events of a run by process.

    Args:
        events: the events of all processes, in the order in which they were written.

    Returns:
        The streams by process name and a number that distinguishes processes of the same name.
    """
    by_pid: dict[int, Stream] = defaultdict(Stream)
    for position, event in enumerate(events):
        stream = by_pid[event["pid"]]
        stream.add(position, event)
        # A spawned process gets its final name only after a while, and loses it at its very end.
        stream.name = event["process"] or stream.name
    streams: dict[tuple[str, int], Stream] = {}
    namesakes: dict[str, int] = defaultdict(int)
    for stream in by_pid.values():
        streams[stream.name, namesakes[stream.name]] = stream
        namesakes[stream.name] += 1
    return streams
