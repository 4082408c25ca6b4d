"""Keep the results of a run: statistics, and for each kind of failure an input and the traceback."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from fuzzing.faults import kind_of

STATISTICS = "statistics.txt"


class Kept(NamedTuple):
    """An input that fails.

    Attributes:
        file: the file with the input.
        kind: the kind of its failure.
        choice: how it was tried; see `Surface.attempt`.
    """

    file: Path
    kind: str
    choice: int


def write(out: Path, data: bytes, suffix: str, choice: int, problem: Exception) -> None:
    """Write an input that fails, and why; another one of the same kind is replaced."""
    kind = _printable(kind_of(problem))
    name = hashlib.sha256(kind.encode()).hexdigest()[:12]
    trace = _printable("".join(traceback.format_exception(problem)))
    (out / f"{name}{suffix}").write_bytes(data)
    (out / f"{name}.txt").write_text(f"{kind}\nchoice {choice}\n\n{trace}\n", encoding="utf-8")


def read(file: Path) -> Kept:
    """Return an input that was kept, given its file or the one with the traceback."""
    kind, choice, *_ = file.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    (found,) = (each for each in file.parent.glob(f"{file.stem}.*") if each.suffix != ".txt")
    return Kept(found, kind, int(choice.removeprefix("choice ")))


def write_statistics(out: Path, counts: Mapping[str, int], kinds: Iterable[str]) -> None:
    """Write down how far a run has come, and the kinds of failures so far."""
    lines = [f"{name} {count}" for name, count in counts.items()]
    text = "\n".join([", ".join(lines), *sorted(map(_printable, kinds)), ""])
    (out / STATISTICS).write_text(text, encoding="utf-8")


def statistics(out: Path) -> tuple[str, list[Kept]]:
    """Return how far the last run has come, and what it kept."""
    file = out / STATISTICS
    counts, *kinds = file.read_text(encoding="utf-8").splitlines() if file.exists() else ["nothing tried"]
    known = (read(each) for each in sorted(out.glob("*.txt")) if each != file)
    return counts, [each for each in known if each.kind in kinds]


def shortened(data: bytes, still: Callable[[bytes], bool], seconds: float) -> bytes:
    """Return a shorter input of which something is still true: first without lines, then without bytes.

    Args:
        data: the input.
        still: what must be true.
        seconds: how long to try.
    """
    until = time.monotonic() + seconds
    for whole_lines in (True, False):
        parts = data.splitlines(keepends=True) if whole_lines else [bytes([byte]) for byte in data]
        size = max(1, len(parts) // 2)
        while size:
            at = 0
            while at < len(parts) and time.monotonic() < until:
                fewer = parts[:at] + parts[at + size :]
                if still(b"".join(fewer)):
                    parts = fewer
                else:
                    at += size
            size //= 2
        data = b"".join(parts)
    return data


def _printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
