"""Change strings in a JSON text, and keep the spelling of everything else.

The text is known to be valid JSON (https://www.rfc-editor.org/rfc/rfc8259): `json` has parsed it before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from devicefix.files.differences import Differences

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_ESCAPED = r"\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|\\u[\da-fA-F]{4}|\\."
_ESCAPE = re.compile(_ESCAPED, re.S)
_CHARACTER = re.compile(rf"{_ESCAPED}|[^\\]", re.S)
_BETWEEN = re.compile(r'",(\s*)"')


class Value(NamedTuple):
    """The span of a value: the offsets of its first character and of the one after its last."""

    start: int
    end: int


def members(text: str, at: int) -> Iterator[tuple[str, Value]]:
    """Yield the keys and the values of the object at an offset."""
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        value = _value(text, start)
        yield key, value
        at = _next(text, value.end)


def elements(text: str, at: int) -> Iterator[Value]:
    """Yield the values in the array at an offset."""
    at = _skip(text, at + 1)
    while text[at] != "]":
        value = _value(text, at)
        yield value
        at = _next(text, value.end)


def sources(text: str) -> Iterator[Value]:
    """Yield the spans of the texts of a notebook's cells; of a cell without text, its own span."""
    for cell in elements(text, dict(members(text, text.index("{")))["cells"].start):
        yield dict(members(text, cell.start)).get("source", cell)


def _value(text: str, start: int) -> Value:
    return Value(start, _DECODER.raw_decode(text, start)[1])


def _next(text: str, at: int) -> int:
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


class Speller:
    """The spelling of characters in one string, or in the strings of an array.

    Args:
        raw: the JSON text.
        elsewhere: the rest of the file, for characters that the string lacks.
    """

    def __init__(self, raw: str, elsewhere: str) -> None:
        inside = (character for character in _CHARACTER.findall(raw) if character >= " " and character != '"')
        self._known = _escapes(elsewhere) | {_read(spelling): spelling for spelling in inside}

    def write(self, text: str) -> str:
        """Return the JSON of a text, without the quotation marks."""
        return "".join(self._known.get(c) or json.dumps(c, ensure_ascii=False)[1:-1] for c in text)


@lru_cache(maxsize=1)  # for all cells of a notebook
def _escapes(text: str) -> dict[str, str]:
    """Return the characters that a JSON text escapes, each as it is spelled last."""
    return {_read(spelling): spelling for spelling in _ESCAPE.findall(text)}


@lru_cache(maxsize=1)
def _usual_separator(text: str) -> str:
    """Return what a JSON text has between the strings of an array."""
    found = _BETWEEN.search(text)
    return f",{found[1]}" if found else ", "


def _read(raw: str) -> str:
    return str(json.loads(f'"{raw}"', strict=False)) if len(raw) > 1 else raw


def with_lines(text: str, value: Value, new: str) -> str:
    """Return the JSON of a new text in place of an old one: one string, or an array with a string a line.

    Args:
        text: the whole JSON.
        value: the span of the string or of the array.
        new: the new text.
    """
    raw = text[value.start : value.end]
    speller = Speller(raw, text)
    lines = new.splitlines(keepends=True)
    if raw.startswith('"'):
        kept = _merged(_lines_of(raw[1:-1]), lines, speller)
        return f'"{"".join(line for line, _ in kept)}"'
    spans = list(elements(text, value.start))
    old = [(json.loads(text[start:end]), text[start + 1 : end - 1]) for start, end in spans]
    usual = _usual_separator(text)
    between = [text[one.end : other.start] for one, other in pairwise(spans)]
    if between:
        usual = between[0]
    elif raw[1:].startswith(("\n", "\r")):  # the only string, on a separate line
        usual = "," + text[value.start + 1 : spans[0].start]
    merged = _merged(old, lines, speller)
    if not merged:
        return "[]"
    parts = [text[value.start : spans[0].start]]
    for number, (line, index) in enumerate(merged, 1):
        parts.append(f'"{line}"')
        if number < len(merged):
            parts.append(between[index] if index is not None and index < len(between) else usual)
    return "".join([*parts, text[spans[-1].end : value.end]])


def _lines_of(raw: str) -> list[tuple[str, str]]:
    """Yield the lines of a string, each with its spelling in JSON."""
    spelled = _CHARACTER.findall(raw)
    lines = "".join(map(_read, spelled)).splitlines(keepends=True)
    spans = pairwise(accumulate(map(len, lines), initial=0))
    return [(line, "".join(spelled[start:end])) for line, (start, end) in zip(lines, spans, strict=True)]


def _merged(old: list[tuple[str, str]], new: list[str], speller: Speller) -> list[tuple[str, int | None]]:
    """Yield the spellings of the new lines, each with the number of the old line that it replaces."""
    merged: list[tuple[str, int | None]] = []
    for kind, start, end, first, last in Differences([text for text, _ in old], new).get_opcodes():
        for at in range(first, last):
            index = start + at - first
            raw = old[index][1] if kind == "equal" else speller.write(new[at])
            merged.append((raw, index if index < end else None))
    return merged
