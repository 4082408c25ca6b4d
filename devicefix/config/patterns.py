"""Match many patterns at once, in a time that depends on the lengths of the patterns and of the text alone.

A regular expression tries every length of every star, which takes minutes for `*a*a*a*a*a*a*a*a*b` and a long
name. Here the patterns are one automaton, whose state is a number: a bit is set where the beginning of a
pattern matches the text so far (Baeza-Yates and Gonnet, "A New Approach to Text Searching", 1992).
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from operator import xor
from typing import NamedTuple

MOST = 10_000  # items of all patterns of a setting, so that compiling and matching them takes milliseconds

_SHOWN = 60  # characters of a pattern in a message

Ranges = tuple[tuple[int, int], ...]  # of code points: each the first and the one after the last

_END = sys.maxunicode + 1
ANY: Ranges = ((0, _END),)
NO_SLASH: Ranges = ((0, ord("/")), (ord("/") + 1, _END))


class Item(NamedTuple):
    """A part of a pattern: one character of a set, or any number of them."""

    characters: Ranges
    repeated: bool = False


Pattern = list[Item]

_TOO_LONG = (
    f"the patterns are too long: with all alternatives written out, at most {MOST:,} characters are allowed"
)


def literal(text: str) -> Pattern:
    """Return the pattern that matches only a text."""
    return [Item(((ord(character), ord(character) + 1),)) for character in text]


# One part of a glob: brackets, an escaped character, or one character.
PART = r"\[[!^]?\]?(?:\\.|[^\]\\])*\]|\\.|."
_SPAN = re.compile(r"(\\.|[^\\])(?:-(\\.|[^\\]))?", re.S)


def item(part: str, among: Ranges) -> Item:
    """Return what a part of a glob matches: `*`, `?`, brackets, a character or an escaped one.

    Args:
        part: the part.
        among: the characters that wildcards match.

    Raises:
        ValueError: the part cannot be used.
    """
    if part[0] in "*?":
        return Item(among, part[0] == "*")
    if part[0] != "[":
        return literal(part[-1])[0]
    if len(part) == 1:
        raise ValueError("the bracket [ is not closed; to match the character itself, write [[]")
    negated = part[1] in "!^"
    spans = []
    for first, last in _SPAN.findall(part[2 if negated else 1 : -1]):
        spans.append((ord(first[-1]), ord((last or first)[-1]) + 1))
        if spans[-1][0] >= spans[-1][1]:
            raise ValueError(f"the range {first}-{last} is empty")
    others = _complement(spans)
    return Item(_common(among, others if negated else _complement(others)))


def _complement(spans: Iterable[tuple[int, int]]) -> Ranges:
    found, at = [], 0
    for start, end in sorted([*spans, (_END, _END)]):
        if at < start:
            found.append((at, start))
        at = max(at, end)
    return tuple(found)


def _common(one: Ranges, other: Ranges) -> Ranges:
    both = ((max(start, first), min(end, last)) for start, end in one for first, last in other)
    return tuple((start, end) for start, end in both if start < end)


def joined(starts: Sequence[Pattern], ends: Sequence[Pattern]) -> list[Pattern]:
    """Return each start with each end.

    Raises:
        ValueError: they are longer than `MOST`.
    """
    if _length(starts) * len(ends) + _length(ends) * len(starts) > MOST:
        raise ValueError(_TOO_LONG)
    return [start + end for start in starts for end in ends]


def check_all(patterns: Iterable[str], read: Callable[[str], Sequence[Pattern]]) -> None:
    """Check that patterns are valid, and not too long together.

    Args:
        patterns: the patterns as text.
        read: returns the alternatives of one.

    Raises:
        ValueError: they can't be used; the message names the pattern.
    """
    left = MOST
    for pattern in patterns:
        try:
            left -= len(pattern) if len(pattern) > MOST else _length(read(pattern))
            if left < 0:
                raise ValueError(_TOO_LONG)
        except ValueError as problem:
            raise ValueError(f"{pattern[:_SHOWN]!r}: {problem}") from None


def _length(alternatives: Sequence[Pattern]) -> int:
    return sum(map(len, alternatives)) + len(alternatives)


class Automaton:
    """Patterns that are matched together.

    Args:
        patterns: for each pattern its alternatives.

    Attributes:
        starts: the state before the first character.
        ends: for each pattern the bits of which one is set where it matches.
    """

    def __init__(self, patterns: Iterable[Iterable[Pattern]]) -> None:
        self.starts = 0
        self.ends: list[int] = []
        # The bits that move on, and those that stay, at a character; what changes from one to the next.
        moving: defaultdict[int, int] = defaultdict(int)
        staying: defaultdict[int, int] = defaultdict(int)
        bit = 1
        for alternatives in patterns:
            ends = 0
            for pattern in alternatives:
                self.starts |= bit
                for characters, repeated in _without_doubles(pattern):
                    changing = staying if repeated else moving
                    for place in chain(*characters):
                        changing[place] ^= bit
                    bit <<= not repeated
                ends |= bit
                bit <<= 1
            self.ends.append(ends)
        self._masks = _Masks(moving, staying)

    def after(self, text: str, state: int) -> int:
        """Return the state after a text, given the one before it."""
        for character in text:
            if not state:
                break
            moving, staying = self._masks[character]
            state = (state & moving) << 1 | (state & staying)
        return state


def _without_doubles(pattern: Pattern) -> Iterator[Item]:
    """Yield the items of a pattern, several stars in a row as one."""
    before = None
    for each in pattern:
        if not (each.repeated and each == before):
            yield each
        before = each


class _Masks(dict[str, tuple[int, int]]):
    """By character, the bits of the states that it moves on, and of those that it leaves as they are."""

    def __init__(self, moving: dict[int, int], staying: dict[int, int]) -> None:
        self._places = sorted({0, *moving, *staying})
        self._moving = list(accumulate((moving[place] for place in self._places), xor))
        self._staying = list(accumulate((staying[place] for place in self._places), xor))

    def __missing__(self, character: str) -> tuple[int, int]:
        at = bisect_right(self._places, ord(character)) - 1
        self[character] = found = (self._moving[at], self._staying[at])
        return found
