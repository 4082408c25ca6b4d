"""Compare two texts line by line, or token by token, in a time that grows linearly, whatever they repeat."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import Match, SequenceMatcher
from itertools import groupby, pairwise
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
Pair = tuple[int, int]  # the places of an item before and after

_SMALL = 10_000  # pairs of items, which difflib compares in milliseconds in the worst case


class Differences(SequenceMatcher[T], Generic[T]):
    """The differences of two sequences, as difflib returns them.

    difflib compares everything with everything where items are repeated, and begins again for each change.
    Here it compares only what lies between the items that occur once in both, as in a patience diff. Where
    much lies between them, it all counts as changed.

    Args:
        old: the items before.
        new: the items after.
    """

    def __init__(self, old: Sequence[T], new: Sequence[T]) -> None:
        super().__init__(None, (), (), autojunk=False)
        self.a, self.b = old, new

    def get_matching_blocks(self) -> list[Match]:
        """Return the parts that are the same, and an empty one at the end."""
        pairs = list(self._pairs())
        runs = groupby(enumerate(pairs), key=lambda each: (each[1][0] - each[0], each[1][1] - each[0]))
        blocks = [[pair for _, pair in run] for _, run in runs]
        return [*(Match(*block[0], len(block)) for block in blocks), Match(len(self.a), len(self.b), 0)]

    def _pairs(self) -> Iterator[Pair]:
        """Yield the places of the items that are the same, in order."""
        whole = len(self.a), len(self.b)
        anchors = _in_order(self._unique()) if whole[0] * whole[1] > _SMALL else []
        for before, after in pairwise([(-1, -1), *anchors, whole]):
            if before != (-1, -1):
                yield before
            yield from self._between((before[0] + 1, before[1] + 1), after)

    def _unique(self) -> list[Pair]:
        """Return the places of the items that occur once before and once after."""
        counts, others = Counter(self.a), Counter(self.b)
        places = {item: place for place, item in enumerate(self.b) if counts[item] == others[item] == 1}
        return [(place, places[item]) for place, item in enumerate(self.a) if item in places]

    def _between(self, start: Pair, end: Pair) -> Iterator[Pair]:
        """Yield the places of the items that are the same in a part of both."""
        (first, other), (last, other_last) = start, end
        while first < last and other < other_last and self.a[first] == self.b[other]:
            yield first, other
            first, other = first + 1, other + 1
        same = 0
        most = min(last - first, other_last - other)
        while same < most and self.a[last - same - 1] == self.b[other_last - same - 1]:
            same += 1
        last, other_last = last - same, other_last - same
        if 0 < (last - first) * (other_last - other) <= _SMALL:
            matcher = SequenceMatcher(None, self.a[first:last], self.b[other:other_last], autojunk=False)
            for at, to, size in matcher.get_matching_blocks():
                yield from ((first + at + step, other + to + step) for step in range(size))
        yield from ((last + step, other_last + step) for step in range(same))


def _in_order(pairs: Sequence[Pair]) -> list[Pair]:
    """Return as many pairs as possible in which the second places grow as the first ones do."""
    lasts: list[int] = []  # by length of a sequence, the second place of the best last pair
    numbers: list[int] = []  # and the number of that pair
    before: list[int] = []  # by pair, the number of the one before it
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(lasts, place)
        before.append(numbers[length - 1] if length else -1)
        lasts[length : length + 1] = [place]
        numbers[length : length + 1] = [number]
    found = []
    number = numbers[-1] if numbers else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]
