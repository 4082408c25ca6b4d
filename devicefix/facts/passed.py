"""The kinds of the arguments that a file passes to the functions of others."""

from __future__ import annotations

import re
from collections.abc import Iterator

from devicefix.facts.flow.kinds import DTYPES, Kind

Passed = tuple[str, tuple[int | str, str]]  # a function, the position or keyword of an argument, and its kind

# What `.to(...)` accepts besides the number of a GPU: as the first argument, a later one, or by keyword.
_DTYPE = rb"torch\.(?:" + "|".join(sorted(DTYPES)).encode() + rb")\b"
_OTHERS = rb"(?:mps|xpu|npu|hpu|mlu|musa|xla)(?::\d+)?"
# One by one: each begins with one text, so that it is found much sooner.
_VALUES = [
    (kind, re.compile(value + rb"(?=\s*[,)])"))
    for kind, value in (
        (Kind.DTYPE, _DTYPE),
        (Kind.DEVICE, b"'" + _OTHERS + b"'"),
        (Kind.DEVICE, b'"' + _OTHERS + b'"'),
    )
]
_SPAWNED = re.compile(rb"\b(?:spawn|start_processes)\(\s*(?:fn\s*=\s*)?(?:\w+\.)*(\w+)\s*[,)]")
_KEYWORD = re.compile(rb"(\w+)\s*\Z")
_OPENING, _CLOSING = b"([{", b")]}"
_FAR = 400  # bytes from the beginning of a call to an argument
_OF_TENSORS = {"to", "type", "astype", "dtype", "device"}  # they are not the project's


def passed_kinds(data: bytes) -> Iterator[Passed]:
    """Yield the arguments that are dtypes, other accelerators or ranks, without parsing the module."""
    if b"multiprocessing" in data:
        yield from ((name.decode(), (0, Kind.INDEX.name)) for name in _SPAWNED.findall(data))
    if b"torch." not in data and b"mps" not in data:
        return
    for kind, found in ((kind, found) for kind, value in _VALUES for found in value.finditer(data)):
        before = data[max(0, found.start() - _FAR) : found.start()].rstrip()
        keyword = _KEYWORD.search(before[:-1]) if before.endswith(b"=") else None
        if not before.endswith((b"(", b",")) and (keyword is None or keyword[1] == b"dtype"):
            continue
        function, position = _call(before if keyword is None else before[: keyword.start()])
        if function and function not in _OF_TENSORS:
            yield function, (position if keyword is None else keyword[1].decode(), kind.name)


def _call(before: bytes) -> tuple[str, int]:
    """Return the function that is called, and how many arguments it has up to the end of some code."""
    depth = position = 0
    for at in range(len(before) - 1, -1, -1):
        character = before[at]
        if character in _CLOSING:
            depth += 1
        elif character in _OPENING and depth:
            depth -= 1
        elif character in _OPENING:
            name = _KEYWORD.search(before[:at]) if character == _OPENING[0] else None
            return (name[1].decode(), position) if name is not None else ("", 0)
        elif character == ord(",") and not depth:
            position += 1
    return "", 0
