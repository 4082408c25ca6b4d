"""Python files: each must have the properties of `tests/properties.py`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

import patterns
import properties

from fuzzing import commands
from fuzzing.faults import Fault
from fuzzing.mutation import bytes_changed
from fuzzing.programs import LONGEST, Programs, found, text_of
from fuzzing.scratch import Scratch
from fuzzing.surface import fixed_one_by_one, rewritten, settings

COMMANDS = 8  # one of so many inputs goes through the commands as well, which take longer


class Files:
    """Python files; see `Surface`."""

    suffix = ".py"

    def __init__(self, corpus: Path | None) -> None:
        self._seeds = list(found(corpus, "*.py"))
        self._programs = Programs(self._seeds)

    def seeds(self) -> Iterable[bytes]:
        """Return the small files that can matter."""
        return self._seeds

    def fresh(self, random: Random) -> bytes:
        """Return a new program."""
        return self._programs.fresh(random).encode()

    def changed(self, random: Random, data: bytes) -> bytes:
        """Return another program, or other bytes."""
        if random.random() < 0.1:
            return bytes_changed(random, data)[:LONGEST]
        return self._programs.changed(random, text_of(data)).encode()[:LONGEST]

    def attempt(self, data: bytes, choice: int, scratch: Scratch) -> bool:
        """Check and rewrite a file, with one of four settings."""
        options = settings(choice)
        output = rewritten(data, "m.py", options).output
        properties.hold(data, options)
        if patterns.parses(text_of(data)):  # old syntax may take several fixes
            for fixed in fixed_one_by_one(data, "m.py", options):
                if not patterns.parses(fixed[None]):
                    raise Fault("a fix alone breaks the file")
        if choice // 4 % COMMANDS == 0:
            commands.round_trip("m.py", data, output, options, scratch)
            commands.report(choice // 32, "--no-cache", "m.py")
        return output is not None
