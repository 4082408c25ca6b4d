"""Positions in a text: as devicefix counts, in characters from 1, and as an editor counts."""

from __future__ import annotations

import re
from functools import cached_property

from lsprotocol import types
from pygls.workspace import PositionCodec

from devicefix.files.differences import Differences
from devicefix.model import Finding, Replacement

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


def lines_of(text: str) -> list[str]:
    """Return the lines of a text with their line ends; the last one has none."""
    return _LINE.findall(text) if text[-1:] in ("\r", "\n", "") else _LINE.findall(text)[:-1]


class Text:
    """A text, with positions as the editor counts them.

    Args:
        text: the text.
        codec: the editor's units of positions.
    """

    def __init__(self, text: str, codec: PositionCodec) -> None:
        self.text = text
        self._codec = codec

    @cached_property
    def lines(self) -> list[str]:
        """The lines with their line ends."""
        return lines_of(self.text)

    def position(self, line: int, column: int) -> types.Position:
        """Return the editor's position of a line and column, at most the end of the text."""
        if line > len(self.lines):
            line, column = len(self.lines), len(self.lines[-1]) + 1
        before = self.lines[line - 1].rstrip("\r\n")[: column - 1]
        units = len(before) if before.isascii() else self._codec.client_num_units(before)
        return types.Position(line - 1, units)

    def range(self, part: Finding | Replacement) -> types.Range:
        """Return the range of a finding, or of the text that a replacement replaces."""
        start, end = (part.line, part.column), (part.end_line, part.end_column)
        return types.Range(self.position(*start), self.position(*end))

    def character(self, position: types.Position) -> tuple[int, int]:
        """Return the line and the column, both from 1 and in characters, of an editor's position."""
        line = min(position.line, len(self.lines) - 1)
        found = self._codec.position_from_client_units(self.lines, types.Position(line, position.character))
        return found.line + 1, found.character + 1

    def edits(self, new: str) -> list[types.TextEdit]:
        """Return the edits that turn this text into another one."""
        others = lines_of(new)
        edits = []
        for kind, first, last, start, end in Differences(self.lines, others).get_opcodes():
            if kind != "equal":
                place = types.Range(self.position(first + 1, 1), self.position(last + 1, 1))
                edits.append(types.TextEdit(place, "".join(others[start:end])))
        return edits
