"""Alignment of two runs: the first difference at each line."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator
from functools import cached_property
from typing import Any

from devicefix.verify.compare.difference import ONLY_CPU, ONLY_CUDA, Difference
from devicefix.verify.compare.streams import Event, Key, Observations, Stream, Value, streams_of
from devicefix.verify.compare.values import same_numbers, unlike

Unsteady = dict[tuple[str, int], dict[tuple[Key, int], int]]

ON_CUDA = 0.9  # the share of the original's operations on CUDA that the rewritten program must reach


def observations(events: Iterable[Event]) -> int:
    """Return the number of observations in a run."""
    return sum(e["until"] - e["since"] + 1 if "until" in e else 1 for e in events if e["kind"] == "seen")


def common(one: list[Event], other: list[Event], ignored: Unsteady) -> int:
    """Return the number of observations that two runs have in common, without those that are ignored."""
    left, right = streams_of(one), streams_of(other)
    found = 0
    for name in left.keys() & right.keys():
        sizes = ignored.get(name, {})
        for key in left[name].seen.keys() | left[name].ranges.keys():
            count = min(left[name].count(key), right[name].count(key))
            unsteady = (size for (line, number), size in sizes.items() if line == key and number <= count)
            found += count - sum(unsteady)
    return found


def unsteady(one: list[Event], again: list[Event], *, tolerance: float) -> Unsteady:
    """Find the observations whose numbers differ between two runs of the same program, such as times.

    Args:
        one: the events of a run.
        again: the events of another run, on the same machine and with the same seeds and paths.
        tolerance: the relative tolerance for numbers.

    Returns:
        For each process, the line and number of these observations, or of the last one of a range, and how
        many they are.
    """
    left, right = streams_of(one), streams_of(again)
    found: Unsteady = {}
    for name in left.keys() & right.keys():
        pair = _Pair(left[name], right[name], same_machine=True, tolerance=tolerance)
        found[name] = dict(pair.unlike_numbers())
    return found


def differences(
    one: list[Event],
    other: list[Event],
    *,
    same_machine: bool,
    tolerance: float,
    ignored: Unsteady | None = None,
) -> list[Difference]:
    """Find where two runs with the same seeds differ.

    Args:
        one: the events of the reference run, which was on CUDA.
        other: the events of the second run, with the same paths.
        same_machine: whether both runs were on the same kind of machine. If so, devices, random draws,
            moves and the number of operations are compared too, and lines that only one run reaches are
            faults.
        tolerance: the relative tolerance for numbers; 0 for exact equality.
        ignored: the observations whose numbers are not compared.

    Returns:
        The first difference of each line, the earliest line first.
    """
    left, right = streams_of(one), streams_of(other)
    pairs = [
        _Pair(left[name], right[name], same_machine, tolerance, (ignored or {}).get(name, {}))
        for name in left
        if name in right
    ]
    known = {key for stream in right.values() for key in stream.seen}
    reaches = _reach(right, pairs, 0), _reach(left, pairs, 1)
    found = [difference for pair in pairs for difference in pair.differences()]
    for name in left:
        if name not in right:
            found += _absent(left[name], same_machine, known, reaches[0])
    for name in right:
        if name not in left:
            found += _added(right[name], same_machine, reaches[1])
    return sorted(found, key=lambda difference: difference.position)


def _reach(streams: dict[tuple[str, int], Stream], pairs: list[_Pair], side: int) -> float:
    """Return how far a possibly interrupted run got, as a position of the run on the other side."""
    if all(stream.complete for stream in list(streams.values())[:1]):  # the process that starts the others
        return math.inf
    return max((pair.reach[side] for pair in pairs), default=-1)


def _absent(stream: Stream, same_machine: bool, known: set[Key], reach: float) -> Iterator[Difference]:
    """Yield the first observation of a process that the second run lacks.

    On a CPU another process may do its work, as with `num_workers=4 if cuda else 0`.
    """
    kind = ONLY_CUDA if not same_machine and stream.seen.keys() <= known else "missing"
    first = stream.first()
    if first is not None and first[1] < reach:
        key, position, value = first
        yield _difference(kind, key, position, process=stream.name, same_machine=same_machine, one=value)


def _added(stream: Stream, same_machine: bool, reach: float) -> Iterator[Difference]:
    """Yield the first observation of a process that only the second run has."""
    kind = "missing" if same_machine else ONLY_CPU
    first = stream.first()
    if first is not None and first[1] < reach:
        key, _, value = first
        yield _difference(kind, key, math.inf, process=stream.name, same_machine=same_machine, other=value)


def _difference(kind: str, key: Key | None, position: float, number: int = 1, **fields: Any) -> Difference:
    file, line, what = key or ("", 0, "")
    return Difference(kind, file, line, what=what, number=number, position=position, **fields)


class _Pair:
    """The same process in two runs."""

    def __init__(
        self,
        one: Stream,
        other: Stream,
        same_machine: bool,
        tolerance: float,
        ignored: Container[tuple[Key, int]] = (),
    ) -> None:
        self._one = one
        self._other = other
        self._same_machine = same_machine
        self._tolerance = tolerance
        self._ignored = ignored

    def unlike_numbers(self) -> Iterator[tuple[tuple[Key, int], int]]:
        """Yield the line and number of each observation or range that differs, and its size."""
        for key, places in self._one.seen.items():
            others = self._other.observations(key)
            for number, ((_, one), (_, other)) in enumerate(zip(places, others, strict=False), 1):
                if one != other and any(unlike(one, other, same_machine=True, tolerance=self._tolerance)):
                    yield (key, number), 1
        for key, ranges in self._one.ranges.items():
            for until, (_, one) in ranges.items():
                _, other = self._other.ranges.get(key, {}).get(until, (0, one))
                if self._unlike_ranges(one["value"], other["value"]):
                    yield (key, until), until - one["since"] + 1

    def differences(self) -> Iterator[Difference]:
        """Yield the differences between the two processes, in no particular order."""
        for key, places in self._one.seen.items():
            if key in self._other.seen:
                yield from self._contents(key, places, self._other.seen[key])
                yield from self._ranges(key)
            yield from self._counts(key)
        for key in self._other.seen:
            if key not in self._one.seen:
                yield from self._counts(key)
        if self._same_machine:
            yield from self._draws()
            yield from self._moves()
            yield from self._operations()
        yield from self._ends()

    def _difference(self, kind: str, key: Key | None, position: float, **fields: Any) -> Difference:
        return _difference(
            kind, key, position, process=self._one.name, same_machine=self._same_machine, **fields
        )

    def _contents(self, key: Key, ones: Observations, others: Observations) -> Iterator[Difference]:
        """Yield the first observation of a line that differs, and the first that is on another device."""
        reported: set[bool] = set()
        for number, ((position, one), (_, other)) in enumerate(zip(ones, others, strict=False), 1):
            if one == other:
                continue
            found = unlike(one, other, same_machine=self._same_machine, tolerance=self._tolerance)
            for kind, path, left, right in found:
                if kind == "value" and (key, number) in self._ignored:
                    continue
                if (kind == "device") not in reported:
                    reported.add(kind == "device")
                    yield self._difference(
                        kind, key, position, number=number, one=left, other=right, path=path
                    )
            if len(reported) == 2:
                return

    def _ranges(self, key: Key) -> Iterator[Difference]:
        """Yield the first range of a line's observations that differs."""
        ones, others = self._one.ranges.get(key, {}), self._other.ranges.get(key, {})
        for until, (position, one) in ones.items():
            if until not in others:
                continue
            left, right = one["value"], others[until][1]["value"]
            kind = self._unlike_ranges(left, right)
            if kind == "device" or (kind and (key, until) not in self._ignored):
                yield self._difference(
                    kind, key, position, since=one["since"], number=until, one=left, other=right
                )
                return

    def _unlike_ranges(self, one: Value, other: Value) -> str | None:
        if self._same_machine and one["devices"] != other["devices"]:
            return "device"
        return None if same_numbers(one, other, self._tolerance) else "value"

    def _counts(self, key: Key) -> Iterator[Difference]:
        """Yield a difference if one run has reached the line more often, as far as both runs got."""
        one, other = self._one.count(key), self._other.count(key)
        if one == other:
            return
        more = self._one if one > other else self._other
        reached = more.observations(key)
        common = min(one, other)
        position: float = reached[common][0] if common < len(reached) else more.last
        if not self._is_due(more, position):
            return
        if more is self._other:
            position = self._translated(position)
        if one and other:
            yield self._difference("count", key, position, number=common + 1, one=one, other=other)
            return
        kind = "missing" if self._same_machine else ONLY_CUDA if one else ONLY_CPU
        value = reached[0][1] if reached else None
        yield self._difference(kind, key, position, one=value if one else None, other=None if one else value)

    def _is_due(self, longer: Stream, position: float) -> bool:
        """Return whether the shorter run got past a position of the longer one."""
        shorter = self._other if longer is self._one else self._one
        if shorter.complete:
            return True
        return position < self.reach[0 if longer is self._one else 1]

    @cached_property
    def reach(self) -> tuple[int, int]:
        """The positions, in each of the runs, up to which both have certainly come."""
        return (
            max((here for here, _ in self._common), default=-1),
            max((there for _, there in self._common), default=-1),
        )

    @cached_property
    def _common(self) -> list[tuple[int, int]]:
        """The positions of the common observations in both runs, sorted by the second."""
        pairs = [
            (here, there)
            for key, places in self._one.seen.items()
            for (here, _), (there, _) in zip(places, self._other.observations(key), strict=False)
        ]
        return sorted(pairs, key=lambda pair: pair[1])

    def _translated(self, position: float) -> float:
        """Return the position in the first run that corresponds to a position in the second."""
        i = bisect_right([there for _, there in self._common], position)
        return self._common[i - 1][0] + 0.5 if i else -1

    def _draws(self) -> Iterator[Difference]:
        """Yield the first random draw that differs."""
        if self._one.complete and self._other.complete:
            ones, others = self._one.sequence(), self._other.sequence()
        else:  # the latest draws may be missing, but every new kind is there
            ones, others = self._one.kinds, self._other.kinds
        for number, ((position, one), (_, other)) in enumerate(zip(ones, others, strict=False), 1):
            if one is not other and _draw_key(one) != _draw_key(other):
                added = number < len(others) and _draw_key(others[number][1]) == _draw_key(one)
                yield self._draw_difference(number, position, one, other, at=other if added else one)
                return
        common = min(len(ones), len(others))
        if len(ones) > common and self._is_due(self._one, ones[common][0]):
            yield self._draw_difference(common + 1, *ones[common], None)
        elif len(others) > common and self._is_due(self._other, others[common][0]):
            position, other = others[common]
            yield self._draw_difference(common + 1, self._translated(position), None, other)

    def _draw_difference(
        self,
        number: int,
        position: float,
        one: Event | None,
        other: Event | None,
        at: Event | None = None,
    ) -> Difference:
        event = at or one or other or {}
        key = (event.get("file", ""), event.get("line", 0), "draw")
        return self._difference("draw", key, position, number=number, one=one, other=other)

    def _moves(self) -> Iterator[Difference]:
        """Yield the lines that move a tensor in a way in which the first run never does.

        A line may move fewer tensors, since a factory can make them on their device.
        """
        if not self._one.complete:
            return
        for (file, line, source, target), (position, ones) in self._one.moves.items():
            _, others = self._other.moves.get((file, line, source, target), (0, []))
            added = next((options for options in others if options not in ones), None)
            if added is not None:
                key, path = (file, line, "move"), f"from {source} to {target}"
                yield self._difference("move", key, position, path=path, one=ones[0], other=added)

    def _operations(self) -> Iterator[Difference]:
        """Yield a difference if the second run moved operations away from CUDA."""
        one, other = self._one.operations, self._other.operations
        if one and other and self._one.complete and self._other.complete:
            if other["cuda"] < ON_CUDA * one["cuda"]:
                counts = {"one": one["cuda"], "other": other["cuda"]}
                yield self._difference("operations", None, self._one.last, number=0, **counts)

    def _ends(self) -> Iterator[Difference]:
        """Yield a difference if the processes ended in different errors."""
        one, other = self._one.error, self._other.error
        if (one and one["type"]) != (other and other["type"]):
            frames = (one or other or {}).get("frames") or [{"file": "", "line": 0}]
            key = (frames[-1]["file"], frames[-1]["line"], "")
            ends = {"one": _error(one), "other": _error(other)}
            yield self._difference("end", key, self._one.last, number=0, **ends)


def _draw_key(event: Event) -> tuple[Any, ...]:
    return event["device"], event["op"], event["numel"]


def _error(event: Event | None) -> str | None:
    if event is None:
        return None
    message = str(event.get("message", "")).strip()
    return f"{event['type']}: {message.splitlines()[0]}" if message else str(event["type"])
