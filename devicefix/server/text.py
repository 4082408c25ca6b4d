"""Places in a text: lines and columns from 1 in characters, as devicefix counts, and as an editor does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cached_property
from itertools import takewhile

from lsprotocol import types
from pygls.workspace import PositionCodec, TextDocument

from devicefix.model import Finding, Replacement

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


def lines_of(text: str) -> list[str]:
    """The lines of a text with their ends, of which the last has none."""
    return _LINE.findall(text) if text[-1:] in ("\r", "\n", "") else _LINE.findall(text)[:-1]


class Document(TextDocument):
    """A text as an editor holds it. For pygls a form feed ends a line, for the protocol it does not."""

    @property
    def lines(self) -> Sequence[str]:
        """The lines with their ends."""
        return lines_of(self.source)


class Text:
    """A text, and how the editor counts in it.

    Args:
        text: the text.
        codec: how the editor counts.
    """

    def __init__(self, text: str, codec: PositionCodec) -> None:
        self.text = text
        self._codec = codec

    @cached_property
    def lines(self) -> list[str]:
        """The lines with their ends."""
        return lines_of(self.text)

    def position(self, line: int, column: int) -> types.Position:
        """A place as the editor counts; one that is not there is the nearest one before it."""
        if line > len(self.lines):
            line, column = len(self.lines), len(self.lines[-1]) + 1
        before = self.lines[line - 1].rstrip("\r\n")[: column - 1]
        units = len(before) if before.isascii() else self._codec.client_num_units(before)
        return types.Position(line - 1, units)

    def range(self, part: Finding | Replacement) -> types.Range:
        """Where a finding is, or what a replacement replaces."""
        return types.Range(
            self.position(part.line, part.column), self.position(part.end_line, part.end_column)
        )

    def character(self, position: types.Position) -> tuple[int, int]:
        """The line, from 1, and the column, from 1 in characters, of a place in the editor."""
        line = min(position.line, len(self.lines) - 1)
        found = self._codec.position_from_client_units(self.lines, types.Position(line, position.character))
        return found.line + 1, found.character + 1

    def edits(self, new: str) -> list[types.TextEdit]:
        """What to change so that another text comes of this one."""
        others = lines_of(new)
        matcher = SequenceMatcher(None, self.lines, others)
        return [
            self._edit(first, "".join(self.lines[first:last]), "".join(others[start:end]))
            for kind, first, last, start, end in matcher.get_opcodes()
            if kind != "equal"
        ]

    def _edit(self, index: int, old: str, new: str) -> types.TextEdit:
        """What changes a part of the text that begins with a line, less what both begin and end with."""
        start = _shared(old, new)
        start -= old.startswith("\r\n", start - 1)  # there is no place between these two
        behind = _shared(old[start:][::-1], new[start:][::-1])
        behind -= old.startswith("\r\n", len(old) - behind - 1)
        where = types.Range(self._inside(index, old[:start]), self._inside(index, old[: len(old) - behind]))
        return types.TextEdit(where, new[start : len(new) - behind])

    def _inside(self, index: int, before: str) -> types.Position:
        """The place behind some text that begins with a line."""
        lines = lines_of(before)
        return self.position(index + len(lines), len(lines[-1]) + 1)


def _shared(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
