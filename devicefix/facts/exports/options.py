"""Find the options of the command line that a file declares: their lines alone are read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice

from devicefix.facts.exports.export import of_bytes
from devicefix.facts.names import options_of

_CALL = re.compile(rb"add_argument\s*\(")
_FIELD = re.compile(rb"^(?:    |\t)(\w+)[ \t]*:[ \t]*bool[ \t]*=[ \t]*(True|False)\b", re.M)  # of a dataclass
_MOST = 40  # closing brackets in one call
_Option = tuple[str, str, str]


@of_bytes(b"add_argument", b"dataclass")
def options(data: bytes) -> frozenset[_Option]:
    """Return the command line's options, each with its type and its default; see `options_of`."""
    return frozenset(_options(data))


def _options(data: bytes) -> Iterator[_Option]:
    for found in _CALL.finditer(data):
        call = _parsed(data, found.start(), found.end())
        if call is not None:
            yield from options_of(call)
    for field in _FIELD.finditer(data) if b"dataclass" in data else ():
        yield field[1].decode(), "bool", field[2].decode()


def _parsed(data: bytes, start: int, end: int) -> ast.Call | None:
    """Return a call by its bytes: up to the first bracket with which it parses."""
    for bracket in islice(re.compile(rb"\)").finditer(data, end), _MOST):
        try:
            parsed = ast.parse(b"p." + data[start : bracket.end()], mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return parsed if isinstance(parsed, ast.Call) else None
    return None
