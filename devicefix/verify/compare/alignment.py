"""Alignment of two runs: the first difference at each line."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from devicefix.verify.compare.difference import ONLY_CPU, ONLY_CUDA, Difference, Place
from devicefix.verify.compare.streams import Event, Key, Name, Seen, Stream, streams_of
from devicefix.verify.compare.values import unlike

Unsteady = frozenset[Place]  # the observations, and other places, at which runs of one program differ

ON_CUDA = 0.9  # the share of operations on CUDA, or in low precision there, that both programs must have


def common(one: list[Event], other: list[Event], ignored: Unsteady) -> int:
    """Return the number of observations that two runs have in common, without those that are ignored."""
    found = 0
    for left, right, key in _pairs(one, other):
        number = min(left.count(key), right.count(key))
        places = (place for place in ignored if place[1:-1] == (left.name, *key))
        found += number - sum(0 < place.number <= number for place in places)
    return found


def _pairs(one: list[Event], other: list[Event]) -> Iterator[tuple[Stream, Stream, Key]]:
    """Yield the streams that two runs have in common, with each line of the first."""
    left, right = streams_of(one), streams_of(other)
    for name in left.keys() & right.keys():
        yield from ((left[name], right[name], key) for key in left[name].seen)


def unsteady(one: list[Event], again: list[Event], *, tolerance: float) -> Unsteady:
    """Find the observations that differ between two runs of the same program, such as times, and the rest.

    Args:
        one: the events of a run.
        again: the events of another run, on the same machine and with the same seeds and paths.
        tolerance: the relative tolerance for numbers.
    """
    numbers = frozenset(
        Place("value", left.name, *key, number)
        for left, right, key in _pairs(one, again)
        for number, seen, other in _both(left, right, key)
        if any(unlike(seen.value, other.value, same_machine=True, tolerance=tolerance))
    )
    others = differences(one, again, same_machine=True, tolerance=tolerance, ignored=numbers)
    return numbers | {each.place for each in others}


def _both(one: Stream, other: Stream, key: Key) -> Iterator[tuple[int, Seen, Seen]]:
    """Yield the observations of a line that both runs recorded, and that are not equal, by their number."""
    others = other.seen.get(key, {})
    for number, seen in one.seen.get(key, {}).items():
        match = others.get(number)
        if match is not None and match.value != seen.value:
            yield number, seen, match


def differences(
    one: list[Event],
    other: list[Event],
    *,
    same_machine: bool,
    tolerance: float,
    ignored: Unsteady = frozenset(),
) -> list[Difference]:
    """Find where two runs with the same seeds differ.

    A process that was interrupted is compared in what it has recorded; what it lacks is no difference.

    Args:
        one: the events of the reference run, which was on CUDA.
        other: the events of the second run, with the same paths.
        same_machine: whether both runs were on the same kind of machine. If so, devices, random draws,
            moves and the number of operations are compared too, and lines that only one run reaches are
            faults.
        tolerance: the relative tolerance for numbers; 0 for exact equality.
        ignored: the observations whose numbers are not compared, and the places of other differences.

    Returns:
        The first difference of each line, the earliest line first.
    """
    left, right = streams_of(one), streams_of(other)
    known = {key for stream in right.values() for key in stream.seen}
    found: list[Difference] = []
    for name in dict.fromkeys((*left, *right)):
        if name in left and name in right:
            pair = _Pair(left[name], right[name], same_machine, tolerance, ignored)
            found += pair.differences()
        elif name in left and _main_is_complete(right):
            # On a CPU another process may do its work, as with `num_workers=4 if cuda else 0`.
            elsewhere = not same_machine and left[name].seen.keys() <= known
            found += _alone(left[name], ONLY_CUDA if elsewhere else "missing", "one", same_machine)
        elif name in right and _main_is_complete(left):
            found += _alone(right[name], "missing" if same_machine else ONLY_CPU, "other", same_machine)
    compared = (difference for difference in found if difference.place not in ignored)
    return sorted(compared, key=lambda difference: difference.position)


def _main_is_complete(streams: Mapping[Name, Stream]) -> bool:
    """Return whether the process that starts the others was not interrupted."""
    return all(stream.complete for stream in list(streams.values())[:1])


def _alone(stream: Stream, kind: str, side: str, same_machine: bool) -> Iterator[Difference]:
    """Yield the first observation of a process that only one run has."""
    for key, line in list(stream.seen.items())[:1]:
        position, value = next(iter(line.values()))
        about: Any = {"process": stream.name, "same_machine": same_machine, "position": position, side: value}
        yield Difference(kind, *key, number=1, **about)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The same process in two runs."""

    _one: Stream
    _other: Stream
    _same_machine: bool
    _tolerance: float
    _ignored: Container[Place]

    @property
    def _complete(self) -> bool:
        return self._one.complete and self._other.complete

    def differences(self) -> Iterator[Difference]:
        """Yield the differences between the two processes, in no particular order."""
        for key in self._one.seen:
            yield from self._contents(key)
        if self._complete:
            for key in dict.fromkeys((*self._one.seen, *self._other.seen)):
                yield from self._counts(key)
        if self._same_machine:
            yield from self._draws()
            yield from self._moves()
            yield from self._uses()
            yield from self._scalers()
            yield from self._operations()
            yield from self._gpus()
        yield from self._ends()

    def _difference(self, kind: str, key: Key, position: float, **fields: Any) -> Difference:
        name, same = self._one.name, self._same_machine
        about: Any = {"process": name, "same_machine": same, "position": position, **fields}
        return Difference(kind, *key, **about)

    def _contents(self, key: Key) -> Iterator[Difference]:
        """Yield the first observation of a line that differs, and the first that is on another device."""
        reported: set[bool] = set()
        for number, seen, other in _both(self._one, self._other, key):
            ignored = Place("value", self._one.name, *key, number) in self._ignored
            how: Any = {"same_machine": self._same_machine, "tolerance": self._tolerance}
            for kind, path, left, right in unlike(seen.value, other.value, **how):
                if (kind == "device") in reported or (ignored and kind not in ("device", "dtype")):
                    continue
                reported.add(kind == "device")
                where = {"number": number, "path": path}
                yield self._difference(kind, key, seen.position, one=left, other=right, **where)
            if len(reported) == 2:
                return

    def _counts(self, key: Key) -> Iterator[Difference]:
        """Yield a difference if one run has reached the line more often."""
        one, other = self._one.count(key), self._other.count(key)
        if one == other:
            return
        more, common = (self._one if one > other else self._other), min(one, other)
        seen = more.seen[key]
        position, value = next((seen[number] for number in seen if number > common), seen[max(seen)])
        if common:
            yield self._difference("count", key, position, number=common + 1, one=one, other=other)
            return
        kind = "missing" if self._same_machine else ONLY_CUDA if one else ONLY_CPU
        yield self._difference(kind, key, position, number=1, **{"one" if one else "other": value})

    def _draws(self) -> Iterator[Difference]:
        """Yield the first random draw that differs."""
        if self._complete:
            ones, others = self._one.sequence(), self._other.sequence()
        else:  # the latest draws may be missing, but every new kind is there
            ones, others = self._one.kinds, self._other.kinds
        for number, ((position, one), (_, other)) in enumerate(zip(ones, others, strict=False), 1):
            if one is not other and _draw_key(one) != _draw_key(other):
                added = number < len(others) and _draw_key(others[number][1]) == _draw_key(one)
                yield self._draw(number, position, other if added else one, one=one, other=other)
                return
        common = min(len(ones), len(others))
        if self._complete and len(ones) != len(others):
            side = "one" if len(ones) > common else "other"
            position, event = (ones if side == "one" else others)[common]
            yield self._draw(common + 1, position, event, **{side: event})

    def _draw(self, number: int, position: float, at: Event, **draws: Event) -> Difference:
        return self._difference("draw", (at["file"], at["line"], "draw"), position, number=number, **draws)

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

    def _uses(self) -> Iterator[Difference]:
        """Yield the lines at which autocast, a scaler or a call is not what it is in the first run."""
        if not self._complete:
            return
        for (file, line), (position, ones) in self._one.uses.items():
            _, others = self._other.uses.get((file, line), (0, set()))
            if ones != others and (others or any(" off " not in use for use in ones)):
                one, other = (" and ".join(sorted(uses)) or "none" for uses in (ones, others))
                yield self._difference("autocast", (file, line, "autocast"), position, one=one, other=other)

    def _scalers(self) -> Iterator[Difference]:
        """Yield the gradient scalers that end in another state."""
        if not self._complete:
            return
        for (position, one), (_, other) in zip(self._one.scalers, self._other.scalers, strict=False):
            if one["state"] != other["state"]:
                key = (one["file"], one["line"], "scaler")
                yield self._difference("scaler", key, position, one=one["state"], other=other["state"])

    def _operations(self) -> Iterator[Difference]:
        """Yield differences if operations moved away from CUDA, or run in another precision there."""
        one, other = self._one.operations, self._other.operations
        if not (one and other and self._complete):
            return
        if other["cuda"] < ON_CUDA * one["cuda"]:
            about = {"one": one["cuda"], "other": other["cuda"], "path": other.get("ran_on", "CUDA")}
            yield self._difference("operations", ("", 0, ""), self._one.last, **about)
        lowered = one.get("lowered", 0), other.get("lowered", 0)
        if min(lowered) < ON_CUDA * max(lowered):
            yield self._difference("lowered", ("", 0, ""), self._one.last, one=lowered[0], other=lowered[1])

    def _gpus(self) -> Iterator[Difference]:
        """Yield a difference if the second run sees other GPUs: it asked before they were chosen."""
        one, other = ((each or {}).get("gpus") for each in (self._one.operations, self._other.operations))
        if one and other and one != other:
            yield self._difference("gpus", ("", 0, ""), self._one.last, one=one, other=other)

    def _ends(self) -> Iterator[Difference]:
        """Yield a difference if the processes ended in different errors."""
        one, other = self._one.error, self._other.error
        if (one and one["type"]) != (other and other["type"]):
            frames = (one or other or {}).get("frames") or [{"file": "", "line": 0}]
            key = (frames[-1]["file"], frames[-1]["line"], "")
            yield self._difference("end", key, self._one.last, one=_error(one), other=_error(other))


def _draw_key(event: Event) -> tuple[Any, ...]:
    return event["device"], event["op"], event["numel"]


def _error(event: Event | None) -> str | None:
    if event is None:
        return None
    message = str(event.get("message", "")).strip()
    return f"{event['type']}: {message.splitlines()[0]}" if message else str(event["type"])
