"""Event streams: what each process of a run recorded."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

Event = dict[str, Any]
Value = dict[str, Any]
Key = tuple[str, int, str]  # file, line, what
Move = tuple[str, int, str, str]  # file, line, device, device that it moves to
Name = tuple[str, int]  # of a process, and a number that distinguishes processes of the same name


class Seen(NamedTuple):
    """An observation: its position in the run, and what was observed."""

    position: int
    value: Value


@dataclass(slots=True)
class Stream:
    """The events of one process.

    Attributes:
        name: the name of the process.
        seen: the observations at each line, by their number.
        counts: the number of observations at each line, also of those that were not recorded.
        kinds: the kinds of random draws, in the order in which they first occurred.
        drawn: the number of the kind of each random draw.
        moves: the ways in which a line moves tensors from a device to another one, and the first position.
        uses: what autocast does at each line, or which function it calls, and the first position.
        scalers: the states of the gradient scalers at the end.
        operations: how many operations ran on each device, if recorded.
        error: the first error, if any.
        ended: whether the process ended regularly.
        last: the position of the last event.
    """

    name: str = ""
    seen: dict[Key, dict[int, Seen]] = field(default_factory=lambda: defaultdict(dict))
    counts: dict[Key, int] = field(default_factory=dict)
    kinds: list[tuple[int, Event]] = field(default_factory=list)
    drawn: list[int] = field(default_factory=list)
    moves: dict[Move, tuple[int, list[list[str]]]] = field(default_factory=dict)
    uses: dict[tuple[str, int], tuple[int, set[str]]] = field(default_factory=dict)
    scalers: list[tuple[int, Event]] = field(default_factory=list)
    operations: Event | None = None
    error: Event | None = None
    ended: bool = False
    last: int = 0

    def add(self, position: int, event: Event) -> None:  # noqa: C901  one branch for each kind  # noqa: C901  one branch for each kind
        """Add the event at a position of the run."""
        kind = event["kind"]
        self.last = position
        if kind == "seen":
            line = self.seen[event["file"], event["line"], event["what"]]
            line[event.get("number", len(line) + 1)] = Seen(position, event["value"])
        elif kind == "counted":
            self.counts[event["file"], event["line"], event["what"]] = event["count"]
        elif kind == "draw":
            self.kinds.append((position, event))
        elif kind == "drawn":
            self.drawn += event["numbers"]
        elif kind == "move":
            key = event["file"], event["line"], event["source"], event["target"]
            self.moves.setdefault(key, (position, []))[1].append(event["options"])
        elif kind in ("autocast", "call"):
            at = self.uses.setdefault((event["file"], event["line"]), (position, set()))
            at[1].add(_use(event))
        elif kind == "scaler":
            self.scalers.append((position, event))
        elif kind == "operations":
            self.operations = event
        elif kind == "error":
            self.error = self.error or event
        elif kind == "ended":
            self.ended = True

    @property
    def complete(self) -> bool:
        """Return whether the process ended regularly, so that no event is missing."""
        return self.ended and self.error is None

    def count(self, key: Key) -> int:
        """Return how many observations a line made."""
        return self.counts.get(key, max(self.seen.get(key, {}), default=0))

    def sequence(self) -> list[tuple[int, Event]]:
        """Return all recorded random draws, each with the position of the newest kind at that moment."""
        kinds = {event["number"]: (position, event) for position, event in self.kinds}
        positions = accumulate((kinds[number][0] for number in self.drawn), max)
        return [(position, kinds[number][1]) for position, number in zip(positions, self.drawn, strict=True)]


def _use(event: Event) -> str:
    """Return what a line does with autocast or a gradient scaler, or which function it calls."""
    if event["kind"] == "call":
        return f"a call of `{event['what']}` for {event['device']}"
    texts = {"off": "autocast off", "scaler": "a gradient scaler on"}
    what = texts.get(event["what"], f"autocast in {event['what']}")
    return f"{what} for {event['device']}"


def streams_of(events: list[Event]) -> dict[Name, Stream]:
    """Group the events of a run by process.

    Args:
        events: the events of all processes, in the order in which they were written.
    """
    by_pid: dict[int, Stream] = defaultdict(Stream)
    for position, event in enumerate(events):
        stream = by_pid[event["pid"]]
        stream.add(position, event)
        # A spawned process gets its final name only after a while, and loses it at its very end.
        stream.name = event["process"] or stream.name
    streams: dict[Name, Stream] = {}
    namesakes: dict[str, int] = defaultdict(int)
    for stream in by_pid.values():
        streams[stream.name, namesakes[stream.name]] = stream
        namesakes[stream.name] += 1
    return streams
