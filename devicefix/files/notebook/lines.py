"""The lines of a notebook's file that hold the lines of its cells, for programs that know no cells."""

from __future__ import annotations

import json
from functools import lru_cache

from devicefix.files.notebook.json_text import Value, elements, sources
from devicefix.files.text import LINE_END


def file_line(data: bytes, cell: int, line: int) -> int:
    """Return the line of a notebook's file that holds a line of a cell, 1 if it is not known.

    Args:
        data: the file's bytes.
        cell: the number of the cell, from 1 and over cells of all kinds.
        line: the line in the cell, from 1.
    """
    try:
        return _lines(data)[cell - 1][line - 1]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return 1


@lru_cache(maxsize=1)  # a report asks for one line after the other
def _lines(data: bytes) -> list[list[int]]:
    """Return for each line of each cell the line of the file."""
    text = data.decode()
    found, at, number = [], 0, 1
    for source in sources(text):
        lines = [number + text.count("\n", at, source.start)]
        begins = True  # whether the last line begins with the next string
        for string in _strings(text, source):
            number += text.count("\n", at, string.start)
            at = string.start
            if begins:
                lines[-1] = number
            code = json.loads(text[string.start : string.end])
            lines += [number] * len(LINE_END.findall(code))
            begins = code.endswith(("\n", "\r")) or (begins and not code)
        found.append(lines)
    return found


def _strings(text: str, source: Value) -> list[Value]:
    """Return the strings of a cell's text."""
    first = text[source.start]
    return list(elements(text, source.start)) if first == "[" else [source] * (first == '"')
