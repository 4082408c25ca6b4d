"""Join cells to one module, and split it again: calls of undefined functions mark commands and cell ends.

The argument of a call is the name of the environment variable that the command sets, or `INSTALLS`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from devicefix.files.notebook.magics import effect, masked
from devicefix.files.notebook.markers import CELL_END, MAGIC
from devicefix.files.positions import Lines
from devicefix.model import SelfCheckError

_HEAD = "#\n#\n"  # so that no cell declares an encoding: it would mean nothing in a notebook
_MASK = re.compile(rf"\n?{CELL_END}(?P<cell>\d+)\(\)\n|{MAGIC}(?P<magic>\d+)\(\w*\)(?P<timed>; )?")


class _Piece(NamedTuple):
    """A part of the module that comes from a cell: its start in both, and its length in the cell."""

    start: int
    cell: int
    at: int
    length: int


class Unmasked:
    """The cells that a module's text contains.

    Args:
        text: the module.
        magics: the commands that are masked in it.
        number: the number of cells.

    Raises:
        SelfCheckError: a command or the end of a cell is not where it was.
    """

    def __init__(self, text: str, magics: list[str], number: int) -> None:
        self.cells: list[str] = []
        self._pieces: list[_Piece] = []
        parts: list[str] = []
        self._length = 0  # of these
        known = 0
        at = len(_HEAD)
        for match in _MASK.finditer(text, at):
            self._add(parts, at, text[at : match.start()])
            if match["cell"]:
                if int(match["cell"]) != len(self.cells):
                    raise SelfCheckError(f"has lost the end of a cell: {len(self.cells) + 1}")
                self.cells.append("".join(parts))
                parts.clear()
                self._length = 0
            else:
                if int(match["magic"]) != known:
                    raise SelfCheckError(f"has lost a command: {magics[known : known + 1]}")
                self._add(parts, match.start(), magics[known])
                known += 1
            at = match.end()
        if not text.startswith(_HEAD) or known != len(magics) or len(self.cells) != number or text[at:]:
            raise SelfCheckError("has lost text between the code")

    def _add(self, parts: list[str], start: int, text: str) -> None:
        self._pieces.append(_Piece(start, len(self.cells), self._length, len(text)))
        parts.append(text)
        self._length += len(text)

    def place(self, offset: int) -> tuple[int, int]:
        """Return the cell, counted from 0, and the offset in it of an offset in the module."""
        index = bisect_right(self._pieces, offset, key=lambda piece: piece.start) - 1
        piece = self._pieces[max(index, 0)]
        return piece.cell, piece.at + max(0, min(offset - piece.start, piece.length))


class Joined:
    """Cells as one module.

    Args:
        cells: their texts, none of which contains a marker.
    """

    def __init__(self, cells: Iterable[str]) -> None:
        self.magics: list[str] = []
        self._number = 0
        parts = [_HEAD]
        for number, cell in enumerate(cells):
            parts.append(f"{masked(cell, self._mask)}\n{CELL_END}{number}()\n")
            self._number = number + 1
        self.text = "".join(parts)

    def _mask(self, command: str, timed: bool) -> str:
        self.magics.append(command)
        return f"{MAGIC}{len(self.magics) - 1}({effect(command)})" + "; " * timed

    def unmasked(self, text: str) -> Unmasked:
        """Return the cells of the module, or of the changed module.

        Raises:
            SelfCheckError: see `Unmasked`.
        """
        return Unmasked(text, self.magics, self._number)

    def restored(self, part: str) -> str:
        """Return a part of the module as the cells spell it."""
        return _MASK.sub(lambda match: self.magics[int(match["magic"])] if match["magic"] else "", part)


def cell_lines(joined: Joined, numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the number of the cell and the line in it for each line of the module.

    Args:
        joined: the cells as one module.
        numbers: the number of each cell in the notebook.
    """
    unmasked = joined.unmasked(joined.text)
    cells = [Lines(cell) for cell in unmasked.cells]
    found = []
    for start in Lines(joined.text).starts[:-1]:
        index, offset = unmasked.place(start)
        found.append((numbers[index], cells[index].position(offset)[0]))
    return found


def line_in_module(joined: Joined, line: int) -> int:
    """Return the line of the module of a single cell that contains a line of the cell."""
    lines = [line for _, line in cell_lines(joined, [1])]
    return lines.index(line, _HEAD.count("\n")) + 1


def is_masked(cell: str) -> bool:
    """Return whether a cell contains one of the markers itself."""
    return CELL_END in cell or MAGIC in cell


def as_python(cell: str) -> str:
    """Return a cell with its commands masked, to find out whether the rest is Python."""
    return masked(cell, lambda _command, timed: "_; " if timed else "_()")
