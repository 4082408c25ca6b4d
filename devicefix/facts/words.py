"""The lines of a text that hold a word or a name: found by a search or, for many words, in an index."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
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
            self._words[word] = lines_with(self._text, word)
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


def as_read(text: str) -> str:
    """Return a text with the line ends and identifiers that `ast` makes of it."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text if text.isascii() else unicodedata.normalize("NFKC", text)
