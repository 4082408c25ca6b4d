"""Try inputs, one after the other, and keep those that fail."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType

from fuzzing import kept
from fuzzing.faults import Fault, kind_of
from fuzzing.programs import LONGEST
from fuzzing.scratch import Scratch
from fuzzing.surface import Surface

HANGS = 30  # seconds after which an input is given up
REAL, FRESH = 400, 200  # inputs of the corpus, and new ones, among the first ones
LAST = "last"  # the input that is being tried, for when the process dies


class Campaign:
    """Tries inputs of a surface. For each kind of failure the shortest input is kept, with a traceback.

    Args:
        surface: what the inputs are.
        out: the folder for what fails.
        scratch: the folder for the files that inputs make, which is entered.
    """

    def __init__(self, surface: Surface, out: Path, scratch: Scratch) -> None:
        self.surface = surface
        self.kinds: dict[str, int] = {}
        self._inputs = self._failed = self._fruitful = 0
        self._out = out
        self._scratch = scratch
        self._started = time.monotonic()

    def __call__(self, data: bytes) -> None:
        """Try one input."""
        choice = zlib.crc32(data)
        self._inputs += 1
        (self._out / LAST).write_bytes(data)
        try:
            self._fruitful += self.attempt(data, choice)
        except Exception as problem:
            self._keep(data, choice, problem)
        if self._inputs % 50 == 0:
            self._write_statistics()

    def attempt(self, data: bytes, choice: int) -> bool:
        """Try an input in an empty folder; see `Surface.attempt`."""
        self._scratch.fill({})
        with _given_up(), self._scratch.watched():
            return self.surface.attempt(data, choice, self._scratch)

    def kind(self, data: bytes, choice: int) -> str | None:
        """Return the kind of failure of an input, None if it has none."""
        try:
            self.attempt(data, choice)
        except Exception as problem:
            return kind_of(problem)
        return None

    def first_inputs(self, random: Random, fresh: int) -> list[bytes]:
        """Return some inputs of the corpus, and some new ones."""
        real = list(self.surface.seeds())
        return [
            *random.sample(real, min(len(real), REAL)),
            *(self.surface.fresh(random) for _ in range(fresh)),
        ]

    def unguided(self, seed: int, runs: int, seconds: float) -> None:
        """Try new and changed inputs, each made from the seed and its number.

        Args:
            seed: chooses the inputs.
            runs: how many to try at most.
            seconds: how long to go on at most.
        """
        pool = self.first_inputs(Random(seed), min(FRESH, runs // 4 + 1))
        for number in range(runs):
            if time.monotonic() - self._started > seconds:
                break
            self(self._next(Random(f"{seed} {number}"), pool))
        self._write_statistics()

    def _next(self, random: Random, pool: Sequence[bytes]) -> bytes:
        if random.random() < 0.2:
            return self.surface.fresh(random)
        data = random.choice(pool)
        for _ in range(random.choice((1, 1, 2, 4))):
            data = self.surface.changed(random, data)
        return data[:LONGEST]

    def _keep(self, data: bytes, choice: int, problem: Exception) -> None:
        """Keep an input that fails, if it is the shortest of its kind."""
        self._failed += 1
        kind = kind_of(problem)
        if len(data) < self.kinds.get(kind, sys.maxsize):
            self.kinds[kind] = len(data)
            kept.write(self._out, data, self.surface.suffix, choice, problem)

    def _write_statistics(self) -> None:
        """Write down how far the run has come."""
        counts = {
            "seconds": round(time.monotonic() - self._started),
            "inputs": self._inputs,
            "fruitful": self._fruitful,
            "failed": self._failed,
            "kinds": len(self.kinds),
        }
        kept.write_statistics(self._out, counts, self.kinds)


@contextmanager
def in_scratch(surface: Surface, out: Path) -> Iterator[Campaign]:
    """Return a campaign with a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as top:
        scratch = Scratch(Path(top))
        campaign = Campaign(surface, out.absolute(), scratch)
        with scratch.entered():
            yield campaign


@contextmanager
def _given_up() -> Iterator[None]:
    """Raise a fault in what does not end; on systems without such a signal, it runs on."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Fault(f"hang: no end in {HANGS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, HANGS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
