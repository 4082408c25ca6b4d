"""Files that hold Python among other things: notebooks, and documentation with blocks of code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from devicefix.files.text import LINE_END, DecodeError, Source
from devicefix.model import Finding, Outcome, Result

STDIN = "-"


class NotANotebook(ValueError):
    """The file is not a notebook; the message says why.

    Attributes:
        position: the line and column of what is wrong, from 1.
    """

    def __init__(self, message: str, position: tuple[int, int] = (1, 1)) -> None:
        super().__init__(message)
        self.position = position


class Unreadable(NamedTuple):
    """A part of a document that cannot be parsed.

    Attributes:
        data: its bytes.
        error: why it cannot be parsed.
        cell: the number of the notebook's cell, from 1; None for the whole document.
    """

    data: bytes
    error: Exception
    cell: int | None = None


class Document(Protocol):
    """A file, and the Python in it.

    Attributes:
        modules: the bytes of the modules in it.
        unreadable: the parts that cannot be parsed.
    """

    modules: list[bytes]
    unreadable: list[Unreadable]

    def result(self, path: str, results: Sequence[Result], problems: Sequence[Finding]) -> Result:
        """Return the result for the document.

        Args:
            path: the document's path.
            results: the results for its modules, in their order.
            problems: findings at their places in the document, to be merged in.

        Returns:
            The findings at their places in the document, and its new bytes where any module changes.

        Raises:
            SelfCheckError: the changed modules cannot be put back.
        """


class Content:
    """The content of a checked file.

    Args:
        outcome: the result of checking the file.
    """

    def __init__(self, outcome: Outcome) -> None:
        self.path = outcome.path
        self._before = outcome.before
        self._lines: dict[int | None, list[str]] = {}

    @cached_property
    def data(self) -> bytes:
        """The file's content; empty if it has been removed since it was checked."""
        if self._before or self.path == STDIN:
            return self._before
        with suppress(OSError):
            return Path(self.path).read_bytes()
        return b""

    def lines(self, cell: int | None = None) -> list[str]:
        """Return the lines, without line ends, of the text or of a notebook's cell.

        Args:
            cell: the number of the cell, None for the whole text.
        """
        if cell not in self._lines:
            self._lines[cell] = LINE_END.split(text_of(self.data, cell))
        return self._lines[cell]


def text_of(data: bytes, cell: int | None = None) -> str:
    """Return the text of a file, or of a notebook's cell, as far as it can be decoded.

    Args:
        data: the file's bytes.
        cell: the number of the cell, from 1; None for the whole file.
    """
    if cell is not None:
        return _cell(data, cell)
    try:
        return Source(data).text
    except DecodeError:
        return data.decode(errors="replace")


def _cell(data: bytes, number: int) -> str:
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        source = _cells(data)[number - 1]["source"]
        return source if isinstance(source, str) else "".join(source)
    return ""


@lru_cache(maxsize=1)  # a report asks for one cell after the other
def _cells(data: bytes) -> Any:
    return json.loads(data)["cells"]
