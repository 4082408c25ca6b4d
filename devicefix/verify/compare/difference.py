"""A difference between two runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

ONLY_CUDA, ONLY_CPU = "only on CUDA", "only on the CPU"
_COUNTS = ("count", "missing", "unreached", ONLY_CUDA, ONLY_CPU)


class Place(NamedTuple):
    """Where runs differ: the kind, the process, and mostly the line; `number` is that of one observation."""

    kind: str
    process: str
    file: str = ""
    line: int = 0
    what: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """A point where two runs differ.

    Attributes:
        kind: "value", "count", "device", "dtype", "shape", "missing", "draw", "move", "autocast", "scaler",
            "operations", "lowered", "gpus", "end", "unreached", ONLY_CUDA or ONLY_CPU.
        file: the source file; empty if the difference belongs to no line.
        line: the line number, from 1.
        what: how the line read the tensor: "item", "print", ...
        process: the name of the process.
        number: the number of the observation at that line, or of the draw; from 1.
        one: the value in the first run: a summary, a number, a text, or None if there is none.
        other: the value in the second run.
        path: the path of the tensor inside a saved object, or a move's two devices, or where operations run.
        same_machine: whether both runs were on the same kind of machine.
        position: the position among the events of the first run.
    """

    kind: str
    file: str = ""
    line: int = 0
    what: str = ""
    process: str = ""
    number: int = 0
    one: Any = None
    other: Any = None
    path: str = ""
    same_machine: bool = False
    position: float = 0

    @property
    def expected(self) -> bool:
        """Return whether the difference is not a fault: guarded lines run on one kind of machine only."""
        return self.kind in (ONLY_CUDA, ONLY_CPU)

    @property
    def place(self) -> Place:
        """Where the difference is; the whole process if it is one in the order of draws, or in sums."""
        kind = "count" if self.kind in _COUNTS and not self.path else self.kind
        line = () if self.what in ("", "draw") else (self.file, self.line, self.what)
        return Place(kind, self.process, *line)
