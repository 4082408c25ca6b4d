"""Where two runs of a program part: what they have seen, drawn, and computed on CUDA.

The events that are compared, of each process by itself:

- `seen`: what the program has seen of its tensors (`devicefix.verify.runtime.observe` says what is in it);
- `draw` (number, device, op, numel, file, line): a new kind of random draw; `drawn` (numbers): the numbers
  of the kinds in the order of drawing;
- `operations` (cuda, cpu), at the end: how many operations have run where;
- `error` and `ended`: how a process has ended. Without `ended`, or after an error, the stream is cut off.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

ONLY_CUDA, ONLY_CPU = "only on CUDA", "only on the CPU"
ON_CUDA = 0.9  # the part of the original's operations on CUDA that the rewritten program must have there
_ZERO = 1e-3  # of the tolerance: a difference that small is rounding, whatever it is relative to

Event = dict[str, Any]
Value = dict[str, Any]
_Key = tuple[str, int, str]  # file, line, what
_Seen = list[tuple[int, Value]]  # positions in the run, and values


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where two runs part.

    Attributes:
        kind: "value", "count", "device", "dtype", "shape", "missing", "draw", "operations", "end", ONLY_CUDA
            or ONLY_CPU.
        file: the line's file; empty where there is no line.
        line: the line.
        process: the process's name.
        what: how the line has seen it: "item", "print", ...
        number: of the observation at that line, or of the draw; from 1.
        one: what the one run has: a summary, a number, a text, or None for nothing.
        other: what the other has.
        path: the tensor's path in what was saved.
        devices: whether both runs were on the same machine.
        since: where `number` ends a part that is known as a whole: where it begins.
        position: where it stands in the one run.
    """

    kind: str
    file: str = ""
    line: int = 0
    process: str = ""
    what: str = ""
    number: int = 0
    one: Any = None
    other: Any = None
    path: str = ""
    devices: bool = False
    since: int = 0
    position: float = 0

    @property
    def expected(self) -> bool:
        """Whether it is no fault: lines under a guard run on one kind of machine only."""
        return self.kind in (ONLY_CUDA, ONLY_CPU)


def observations(events: Iterable[Event]) -> int:
    """How many observations a run has made."""
    return sum(e["until"] - e["since"] + 1 if "until" in e else 1 for e in events if e["kind"] == "seen")


def differences(one: list[Event], other: list[Event], *, devices: bool, tolerance: float) -> list[Difference]:
    """Where two runs with the same seeds part: of each line the first place, the earliest line first.

    Args:
        one: the events of the run that is right; one on CUDA.
        other: the events of the other run, with the same paths.
        devices: whether both were on the same kind of machine: then devices, random draws and the numbers
            of operations count, and lines that only one of them has are faults.
        tolerance: of numbers, relative; 0 for none.
    """
    left, right = _streams(one), _streams(other)
    pairs = [_Pair(left[name], right[name], devices, tolerance) for name in left if name in right]
    known = {key for stream in right.values() for key in stream.seen}
    reaches = _reach(right, pairs, 0), _reach(left, pairs, 1)
    found = [difference for pair in pairs for difference in pair.differences()]
    found += [
        each for name in left if name not in right for each in _absent(left[name], devices, known, reaches[0])
    ]
    found += [each for name in right if name not in left for each in _added(right[name], devices, reaches[1])]
    return sorted(found, key=lambda difference: difference.position)


@dataclass(slots=True)
class _Stream:
    """What one process of a run has written.

    Attributes:
        name: of the process.
        seen: observations that are known one by one.
        parts: observations that are known in parts only, by the number of their last one.
        kinds: of random draws, as they came up.
        drawn: the numbers of the kinds in the order of drawing.
    """

    name: str = ""
    seen: dict[_Key, _Seen] = field(default_factory=lambda: defaultdict(list))
    parts: dict[_Key, dict[int, tuple[int, Event]]] = field(default_factory=lambda: defaultdict(dict))
    kinds: list[tuple[int, Event]] = field(default_factory=list)
    drawn: list[int] = field(default_factory=list)
    operations: Event | None = None
    error: Event | None = None
    ended: bool = False
    last: int = 0

    def add(self, position: int, event: Event) -> None:
        kind = event["kind"]
        self.last = position
        if kind == "seen":
            key = (event["file"], event["line"], event["what"])
            if "until" in event:
                self.parts[key][event["until"]] = (position, event)
            else:
                self.seen[key].append((position, event["value"]))
        elif kind == "draw":
            self.kinds.append((position, event))
        elif kind == "drawn":
            self.drawn += event["numbers"]
        elif kind == "operations":
            self.operations = event
        elif kind == "error":
            self.error = self.error or event
        elif kind == "ended":
            self.ended = True

    @property
    def complete(self) -> bool:
        return self.ended and self.error is None

    def count(self, key: _Key) -> int:
        """How often a line has seen something."""
        return max(self.parts[key]) if key in self.parts else len(self.seen.get(key, ()))

    def places(self, key: _Key) -> _Seen:
        return self.seen.get(key, [])

    def sequence(self) -> list[tuple[int, Event]]:
        """All random draws that are known, each with the position of the kind that was the latest then."""
        kinds = {event["number"]: (position, event) for position, event in self.kinds}
        positions = accumulate((kinds[number][0] for number in self.drawn), max)
        return [(position, kinds[number][1]) for position, number in zip(positions, self.drawn, strict=True)]

    def first(self) -> Iterator[tuple[_Key, int, Value]]:
        """The first observation, if there is one."""
        for key, places in list(self.seen.items())[:1]:
            yield key, *places[0]


def _streams(events: list[Event]) -> dict[tuple[str, int], _Stream]:
    """The processes of a run by their names, and their order where several are called the same."""
    by_pid: dict[int, _Stream] = defaultdict(_Stream)
    for position, event in enumerate(events):
        stream = by_pid[event["pid"]]
        stream.add(position, event)
        stream.name = event["process"]  # a spawned process has its own name only after a while
    streams: dict[tuple[str, int], _Stream] = {}
    namesakes: dict[str, int] = defaultdict(int)
    for stream in by_pid.values():
        streams[stream.name, namesakes[stream.name]] = stream
        namesakes[stream.name] += 1
    return streams


def _reach(streams: dict[tuple[str, int], _Stream], pairs: list[_Pair], side: int) -> float:
    """How far a run came that may have been stopped: in positions of the run on the other side."""
    if all(stream.complete for stream in list(streams.values())[:1]):  # the process that starts the others
        return math.inf
    return max((pair.reach[side] for pair in pairs), default=-1)


def _absent(stream: _Stream, devices: bool, known: set[_Key], reach: float) -> Iterator[Difference]:
    """A process that the other run lacks, by the first thing that it has seen.

    On a CPU the work of a process may be done by another one, as with `num_workers=4 if cuda else 0`.
    """
    kind = ONLY_CUDA if not devices and stream.seen.keys() <= known else "missing"
    for key, position, value in stream.first():
        if position < reach:
            yield _difference(kind, key, position, stream.name, devices, number=1, one=value)


def _added(stream: _Stream, devices: bool, reach: float) -> Iterator[Difference]:
    kind = "missing" if devices else ONLY_CPU
    for key, position, value in stream.first():
        if position < reach:
            yield _difference(kind, key, math.inf, stream.name, devices, number=1, other=value)


def _difference(
    kind: str, key: _Key | None, position: float, process: str, devices: bool, **more: Any
) -> Difference:
    file, line, what = key or ("", 0, "")
    return Difference(kind, file, line, process, what, position=position, devices=devices, **more)


class _Pair:
    """The same process in two runs."""

    def __init__(self, one: _Stream, other: _Stream, devices: bool, tolerance: float) -> None:
        self._one = one
        self._other = other
        self._devices = devices
        self._tolerance = tolerance

    def differences(self) -> Iterator[Difference]:
        for key, places in self._one.seen.items():
            if key in self._other.seen:
                yield from self._contents(key, places, self._other.seen[key])
                yield from self._parts(key)
            yield from self._counts(key)
        for key in self._other.seen:
            if key not in self._one.seen:
                yield from self._counts(key)
        if self._devices:
            yield from self._draws()
            yield from self._operations()
        yield from self._ends()

    def _difference(self, kind: str, key: _Key | None, position: float, **more: Any) -> Difference:
        return _difference(kind, key, position, self._one.name, self._devices, **more)

    def _contents(self, key: _Key, places: _Seen, others: _Seen) -> Iterator[Difference]:
        """The first observation of a line that differs, and the first on another device."""
        told: set[bool] = set()
        for number, ((position, one), (_, other)) in enumerate(zip(places, others, strict=False), 1):
            if one == other:
                continue
            for kind, path, left, right in unlike(one, other, self._devices, self._tolerance):
                if (kind == "device") not in told:
                    told.add(kind == "device")
                    yield self._difference(
                        kind, key, position, number=number, one=left, other=right, path=path
                    )
            if len(told) == 2:
                return

    def _parts(self, key: _Key) -> Iterator[Difference]:
        ones, others = self._one.parts.get(key, {}), self._other.parts.get(key, {})
        for until, (position, one) in ones.items():
            if until not in others:
                continue
            other = others[until][1]
            kind = self._unlike_parts(one["value"], other["value"])
            if kind:
                yield self._difference(
                    kind,
                    key,
                    position,
                    since=one["since"],
                    number=until,
                    one=one["value"],
                    other=other["value"],
                )
                return

    def _unlike_parts(self, one: Value, other: Value) -> str | None:
        if self._devices and one["devices"] != other["devices"]:
            return "device"
        return None if _same_numbers(one, other, self._tolerance) else "value"

    def _counts(self, key: _Key) -> Iterator[Difference]:
        """A line that one run has reached more often, as far as both have run."""
        one, other = self._one.count(key), self._other.count(key)
        if one == other:
            return
        more = self._one if one > other else self._other
        places = more.places(key)
        common = min(one, other)
        position: float = places[common][0] if common < len(places) else more.last
        if not self._is_due(more, position):
            return
        if more is self._other:
            position = self._there(position)
        if one and other:
            yield self._difference("count", key, position, number=common + 1, one=one, other=other)
            return
        kind = "missing" if self._devices else ONLY_CUDA if one else ONLY_CPU
        value = places[0][1] if places else None
        pair = (value, None) if one else (None, value)
        yield self._difference(kind, key, position, number=1, one=pair[0], other=pair[1])

    def _is_due(self, more: _Stream, position: float) -> bool:
        """Whether the other run, if it was cut off, was cut off after that position of the longer one."""
        less = self._other if more is self._one else self._one
        if less.complete:
            return True
        return position < self.reach[0 if more is self._one else 1]

    @cached_property
    def reach(self) -> tuple[int, int]:
        """The positions up to which both runs have surely come, in each of them."""
        return (
            max((here for here, _ in self._common), default=-1),
            max((there for _, there in self._common), default=-1),
        )

    @cached_property
    def _common(self) -> list[tuple[int, int]]:
        """The positions of what both have seen, in each of the runs; in the order of the other."""
        pairs = [
            (here, there)
            for key, places in self._one.seen.items()
            for (here, _), (there, _) in zip(places, self._other.places(key), strict=False)
        ]
        return sorted(pairs, key=lambda pair: pair[1])

    def _there(self, position: float) -> float:
        """Where something that only the other run has would stand in the one."""
        i = bisect_right([there for _, there in self._common], position)
        return self._common[i - 1][0] + 0.5 if i else -1

    def _draws(self) -> Iterator[Difference]:
        if self._one.complete and self._other.complete:
            ones, others = self._one.sequence(), self._other.sequence()
        else:  # the latest draws may not have been written, but every new kind has
            ones, others = self._one.kinds, self._other.kinds
        for number, ((position, one), (_, other)) in enumerate(zip(ones, others, strict=False), 1):
            if one is not other and _draw(one) != _draw(other):
                yield self._draw_difference(number, position, one, other)
                return
        common = min(len(ones), len(others))
        if len(ones) > common and self._is_due(self._one, ones[common][0]):
            yield self._draw_difference(common + 1, *ones[common], None)
        elif len(others) > common and self._is_due(self._other, others[common][0]):
            position, other = others[common]
            yield self._draw_difference(common + 1, self._there(position), None, other)

    def _draw_difference(
        self, number: int, position: float, one: Event | None, other: Event | None
    ) -> Difference:
        place = one or other or {}
        key = (place.get("file", ""), place.get("line", 0), "draw")
        return self._difference("draw", key, position, number=number, one=one, other=other)

    def _operations(self) -> Iterator[Difference]:
        one, other = self._one.operations, self._other.operations
        if one and other and self._one.complete and self._other.complete:
            if other["cuda"] < ON_CUDA * one["cuda"]:
                yield self._difference(
                    "operations", None, self._one.last, one=one["cuda"], other=other["cuda"]
                )

    def _ends(self) -> Iterator[Difference]:
        one, other = self._one.error, self._other.error
        if (one and one["type"]) != (other and other["type"]):
            frames = (one or other or {}).get("frames") or [{"file": "", "line": 0}]
            key = (frames[-1]["file"], frames[-1]["line"], "")
            yield self._difference("end", key, self._one.last, one=_error(one), other=_error(other))


def _draw(event: Event) -> tuple[Any, ...]:
    return event["device"], event["op"], event["numel"]


def _error(event: Event | None) -> str | None:
    if event is None:
        return None
    message = str(event.get("message", "")).strip()
    return f"{event['type']}: {message.splitlines()[0]}" if message else str(event["type"])


def unlike(
    one: Value, other: Value, devices: bool, tolerance: float
) -> Iterator[tuple[str, str, Value | None, Value | None]]:
    """What tells two observations apart.

    Args:
        one: a summary of a tensor, or of what was saved.
        other: another one.
        devices: whether the devices count.
        tolerance: of the numbers.

    Yields:
        The kind of difference, the path in what was saved, and the two summaries of tensors.
    """
    if "tensors" not in one or "tensors" not in other:
        yield from ((kind, "", one, other) for kind in _kinds(one, other, devices, tolerance))
        return
    ones, others = one["tensors"], other["tensors"]
    for path in dict.fromkeys((*ones, *others)):
        left, right = ones.get(path), others.get(path)
        if left is None or right is None:
            yield "missing", path, left, right
        else:
            yield from ((kind, path, left, right) for kind in _kinds(left, right, devices, tolerance))


def _kinds(one: Value, other: Value, devices: bool, tolerance: float) -> Iterator[str]:
    if devices and one["device"] != other["device"]:
        yield "device"
    for kind in ("dtype", "shape"):
        if one[kind] != other[kind]:
            yield kind
            return
    if not _same_numbers(one, other, tolerance):
        yield "value"


def _same_numbers(one: Value, other: Value, tolerance: float) -> bool:
    if "item" in one and "item" in other:
        return _close(one["item"], other["item"], tolerance)
    if one.get("digest") == other.get("digest"):
        return "item" not in one and "item" not in other
    if not tolerance or one.get("nonfinite") != other.get("nonfinite"):
        return False
    if "digest" not in one or "digest" not in other:
        return False
    scale = max(one["abs"], other["abs"])
    pairs = zip(one.get("sample", ()), other.get("sample", ()), strict=False)
    return (
        _close(one["mean"], other["mean"], tolerance, scale)
        and _close(one["abs"], other["abs"], tolerance, scale)
        and all(_close(left, right, tolerance, scale) for left, right in pairs)
    )


def _close(one: Any, other: Any, tolerance: float, scale: float = 0.0) -> bool:
    """Whether two numbers are the same within a tolerance, relative to the larger one or to a scale."""
    if one == other:
        return True
    if isinstance(one, bool) or isinstance(other, bool):
        return False
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    if math.isinf(one) or math.isinf(other):
        return False
    return bool(abs(one - other) <= tolerance * max(abs(one), abs(other), scale, _ZERO))


_CALLS = {
    "item": ".item()",
    "tolist": ".tolist()",
    "numpy": ".numpy()",
    "array": "numpy.asarray()",
    "float": "float()",
    "int": "int()",
    "print": "print()",
    "format": "format()",
    "save": "torch.save()",
}
_VERBS = {"print": "showed", "format": "showed", "save": "wrote"}


def describe(difference: Difference) -> str:
    """A difference in words, in one line."""
    there = (
        ("in the original", "in the rewritten program") if difference.devices else ("on CUDA", "on the CPU")
    )
    text = _describe(difference, *there)
    place = f"{_shown(difference.file)}:{difference.line}: " if difference.file else ""
    return f"{place}{text}"


def _describe(difference: Difference, here: str, there: str) -> str:
    kind, one, other = difference.kind, difference.one, difference.other
    if kind == "operations":
        return f"{other} operations ran on CUDA {there}, and {one} {here}"
    if kind == "end":
        return f"it ended {_ended(one)} {here}, and {_ended(other)} {there}"
    if kind == "count":
        return f"{_CALLS[difference.what]} ran {_times(one)} {here} and {_times(other)} {there}"
    if kind == "draw":
        return _describe_draw(difference, here, there)
    if one is None or other is None:
        return _describe_missing(difference, here, there)
    left, right = _values(kind, one, other)
    verb = f"{_CALLS[difference.what]} {_VERBS.get(difference.what, 'gave')}"
    path = f" {difference.path}:" if difference.path else ""
    return f"{verb}{path} {left} {here} and {right} {there} ({_number(difference)})"


def _describe_missing(difference: Difference, here: str, there: str) -> str:
    if difference.kind in (ONLY_CUDA, ONLY_CPU):
        return f"this line saw a tensor {difference.kind}"
    has, lacks = (there, here) if difference.one is None else (here, there)
    if difference.path:
        return f"torch.save() wrote {difference.path} {has}, and not {lacks} ({_number(difference)})"
    return f"this line saw a tensor {has}, and none {lacks} (process {difference.process})"


def _describe_draw(difference: Difference, here: str, there: str) -> str:
    one, other = difference.one, difference.other
    left, right = (
        f"{each['op']} of {each['numel']} on {each['device']}" if each else "nothing" for each in (one, other)
    )
    return f"the {_ordinal(difference.number)} random draw was {left} {here} and {right} {there}"


def _ended(error: str | None) -> str:
    return f"in an error ({error})" if error else "without an error"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _number(difference: Difference) -> str:
    if difference.since:
        return f"{_ordinal(difference.since)} to {_ordinal(difference.number)} time at this line"
    return f"{_ordinal(difference.number)} time at this line"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def _values(kind: str, one: Value, other: Value) -> tuple[str, str]:
    """What differs, of both."""
    if kind == "device" and "device" not in one:
        return " and ".join(one["devices"]), " and ".join(other["devices"])
    if kind in ("device", "dtype"):
        return f"a tensor {_on(kind)}{one[kind]}", f"{_on(kind)}{other[kind]}"
    if kind == "shape":
        return f"shape {tuple(one[kind])}", f"{tuple(other[kind])}"
    if "item" in one:
        return _two(one["item"], other["item"])
    for index, (left, right) in enumerate(zip(one.get("sample", ()), other.get("sample", ()), strict=False)):
        if not _close(left, right, 1e-12):
            left, right = _two(left, right)
            return f"{_tensor(one)} with {left} as its {_ordinal(index + 1)} sample", right
    if "mean" in one and one["mean"] != other["mean"]:
        left, right = _two(one["mean"], other["mean"])
        return f"{_tensor(one)} with the mean {left}", right
    return f"{_tensor(one)}", "other elements"


def _on(kind: str) -> str:
    return "on " if kind == "device" else "of "


def _tensor(value: Value) -> str:
    return f"{value['dtype']}{value['shape']}" if "dtype" in value else "tensors"


def _two(one: Any, other: Any) -> tuple[str, str]:
    """Two numbers with as many digits as tell them apart."""
    for digits in (4, 6, 8, 12):
        left, right = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if left != right and not isinstance(one, bool):
            return left, right
    return repr(one), repr(other)


def _shown(file: str) -> str:
    """A path as a person would write it."""
    relative = os.path.relpath(file) if os.path.isabs(file) else file
    return file if relative.startswith(os.pardir) else relative
