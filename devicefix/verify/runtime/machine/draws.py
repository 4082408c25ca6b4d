"""Which random numbers a program draws, in which order: on CUDA each GPU has a stream of its own.

Events: `draw` for each new kind (device, operation, how many, line) with its `number`; `drawn` with the
numbers of kinds in the order of drawing, a block at a time; at the end `draws` with the `count` of all and a
`digest` of the devices, operations and amounts in their order.
"""

from __future__ import annotations

import zlib

from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.site import Sites

_BLOCK = 4096


class Draws:
    """The random numbers that one process has drawn.

    Args:
        events: where to write.
        sites: finds the user's line.
    """

    def __init__(self, events: Events, sites: Sites) -> None:
        self._events = events
        self._sites = sites
        self.restart()

    def restart(self) -> None:
        """Begin anew: this is another process now."""
        self._kinds: dict[tuple[str, str, int, str, int], int] = {}
        self._drawn: list[int] = []
        self._count = 0
        self._digest = 0

    def add(self, device: str, op: str, numel: int) -> None:
        """An operation has drawn random numbers.

        Args:
            device: where.
            op: its name.
            numel: how many.
        """
        site = self._sites.current(4)
        key = (device, op, numel, site.file, site.line)
        number = self._kinds.get(key)
        if number is None:
            number = self._kinds[key] = len(self._kinds)
            self._events.emit(
                "draw", number=number, device=device, op=op, numel=numel, file=site.file, line=site.line
            )
        self._count += 1
        self._digest = zlib.crc32(f"{device} {op} {numel}".encode(), self._digest)
        self._drawn.append(number)
        if len(self._drawn) >= _BLOCK:
            self._write()

    def _write(self) -> None:
        if self._drawn:
            self._events.emit("drawn", numbers=self._drawn)
            self._drawn = []

    def finish(self) -> None:
        """Write down what is held back."""
        self._write()
        self._events.emit("draws", count=self._count, digest=f"{self._digest:08x}")
