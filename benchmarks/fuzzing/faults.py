"""Faults: what must not happen for any input, and what those of one cause have in common."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

SLOW = 2.0  # seconds of processor time for one operation

_VARYING = re.compile(r"\d+|'[^']*'.*|\"[^\"]*\".*", re.S)
_INTERNAL = re.compile(r"internal error[^\n]*?: (\w+): [^\n]*(\(\w+\.py:\d+\))")


class Fault(AssertionError):
    """Something that must not happen for any input; the message says what."""


@contextmanager
def quick(what: str) -> Iterator[None]:
    """Refuse an operation that takes too long."""
    started = time.process_time()
    yield
    taken = time.process_time() - started
    if taken > SLOW:
        raise Fault(f"slow: {what} took {taken:.1f} s")


def kind_of(problem: BaseException) -> str:
    """Return what failures of one cause have in common: type, place, and first rule or words."""
    said = str(problem)
    internal = _INTERNAL.search(said)
    if internal:
        return " ".join(("internal error", *internal.groups()))
    frame = traceback.extract_tb(problem.__traceback__)[-1]
    code = re.search(r"DF\d+", said)
    words = code.group() if code else _VARYING.sub("", said)[:80].strip()
    return f"{type(problem).__name__} {frame.name}:{frame.lineno} {words}"
