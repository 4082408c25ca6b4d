"""The evidence from runs of a program, for the fixes that only a run can justify."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Seen(NamedTuple):
    """An observation of a run at a line.

    Attributes:
        kind: "copy" for a call that copies on a GPU only, while both sides are in use; "attribute" for an
            attribute that the object has on CUDA only; "request" for a request for CUDA.
        line: the line, from 1.
        name: the name of the method that moves, or of the attribute; empty for a request.
    """

    kind: str
    line: int
    name: str


class Proven(NamedTuple):
    """An unsafe fix that runs have proven: its line, from 1, and the code of its rule."""

    line: int
    code: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """The observations of runs in a program's files.

    Attributes:
        seen: each file, by its path as it is checked, with what was seen there.
        proven: each file with an unsafe fix that is proven there.
    """

    seen: frozenset[tuple[str, Seen]] = frozenset()
    proven: frozenset[tuple[str, Proven]] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.seen or self.proven)

    def __or__(self, other: Evidence) -> Evidence:
        return Evidence(self.seen | other.seen, self.proven | other.proven)

    def __sub__(self, other: Evidence) -> Evidence:
        return Evidence(self.seen - other.seen, self.proven - other.proven)

    @property
    def files(self) -> set[str]:
        """The files that there is evidence on."""
        return {path for path, _ in self.seen} | {path for path, _ in self.proven}

    def seen_in(self, path: str) -> frozenset[Seen]:
        """Return what was seen in a file."""
        return frozenset(seen for file, seen in self.seen if file == path)

    def proves(self, path: str, line: int, code: str) -> bool:
        """Return whether an unsafe fix is proven."""
        return (path, Proven(line, code)) in self.proven

    def moved(self, path: str, origins: Sequence[int]) -> Evidence:
        """Return the evidence on a file for its rewritten text.

        Args:
            path: the file.
            origins: for each line of the rewritten text, from 0, the line of the file that it belongs to.
        """
        lines: dict[int, list[int]] = {}
        for new, old in enumerate(origins if self else (), 1):
            lines.setdefault(old + 1, []).append(new)
        return self._at(path, lambda file, line: lines.get(line, ()) if file == path else ())

    def placed(self, real: str, path: str, lines: Mapping[int, int]) -> Evidence:
        """Return the evidence on a file for another text with the same code.

        Args:
            real: the real path of the file.
            path: the path with which the text is checked.
            lines: the line of the text for each line of the file that it has.
        """

        def placed(file: str, line: int) -> list[int]:
            return [lines[line]] if line in lines and os.path.realpath(file) == real else []

        return self._at(path, placed)

    def _at(self, path: str, lines: Callable[[str, int], Iterable[int]]) -> Evidence:
        """Return the evidence at the lines of another text.

        Args:
            path: the path with which the text is checked.
            lines: returns the lines of the text for a file and a line.
        """
        seen = ((path, at._replace(line=n)) for file, at in self.seen for n in lines(file, at.line))
        proven = ((path, at._replace(line=n)) for file, at in self.proven for n in lines(file, at.line))
        return Evidence(frozenset(seen), frozenset(proven))


NO_EVIDENCE = Evidence()
