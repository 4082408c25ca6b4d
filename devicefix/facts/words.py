"""The lines of a text that hold a word or a name: found by a search or, for many words, in an index."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property

from devicefix.facts.prefilter import lines_with, lines_with_name

_SEARCHES = 100  # an index of most texts takes as long as so many searches
_NAME = re.compile(r"\w+")


class Words:
    """The lines of a text that hold a word or a name.

    Args:
        text: the text, whose lines end in a line feed.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._words: dict[str, Sequence[int]] = {}
        self._names: dict[str, Sequence[int]] = {}

    def lines_with(self, word: str) -> Sequence[int]:
        """Return the lines, from 1 and in order, that hold a word or a part of one."""
        if word not in self._words:
            names = self._names_in(word) if len(self._words) > _SEARCHES else None
            self._words[word] = lines_with(self._text, word) if names is None else self._found(word, names)
        return self._words[word]

    def lines_with_name(self, name: str) -> Sequence[int]:
        """Return the lines, from 1 and in order, that hold a name, and not only as a part of another."""
        if name not in self._names:
            many = len(self._names) > _SEARCHES and _NAME.fullmatch(name)
            self._names[name] = self._index.get(name, ()) if many else lines_with_name(self._text, name)
        return self._names[name]

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return self._text.split("\n")

    @cached_property
    def _index(self) -> dict[str, list[int]]:
        """The lines of each name."""
        found: dict[str, list[int]] = {}
        for number, line in enumerate(self.lines, 1):
            for name in dict.fromkeys(_NAME.findall(line)):
                found.setdefault(name, []).append(number)
        return found

    def _names_in(self, word: str) -> Iterable[str] | None:
        """Return the names of which one is in each line that holds a word; None for any name.

        In `.f(` that is `f`, in `.f` all that begin with it, in `f(` all that end with it.
        """
        match = max(_NAME.finditer(word), key=lambda each: len(each[0]), default=None)
        if match is None or match.span() == (0, len(word)):
            return None
        if match.start() and match.end() < len(word):
            return [match[0]]
        if match.start():
            return _beginning_with(match[0], self._sorted)
        return [name[::-1] for name in _beginning_with(match[0][::-1], self._backwards)]

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._index)

    @cached_property
    def _backwards(self) -> list[str]:
        return sorted(name[::-1] for name in self._index)

    def _found(self, word: str, names: Iterable[str]) -> list[int]:
        lines = {line for name in names for line in self._index.get(name, ())}
        return sorted(line for line in lines if word in self.lines[line - 1])


def _beginning_with(start: str, names: list[str]) -> list[str]:
    """Return the names with a beginning, of names that are sorted."""
    first = bisect_left(names, start)
    last = bisect_left(names, f"{start}\U0010ffff", first)
    return names[first:last]
