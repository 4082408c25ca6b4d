"""The order of random draws, which matters since each GPU has its own generator.

Events: `draw` for each new kind (device, operation, number of elements, line) with its `number`; `drawn` with
the kinds in the order of drawing, in blocks; and at the end `draws` with the total `count` and a `digest` of
the devices, operations and numbers of elements in their order.
"""

from __future__ import annotations

import zlib

from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.site import Sites

_BLOCK = 4096


class Draws:
    """The random draws of one process.

    Args:
        events: the recorder of events.
        sites: finds the user's line.
    """

    def __init__(self, events: Events, sites: Sites) -> None:
        self._events = events
        self._sites = sites
        self.restart()

    def restart(self) -> None:
        """Discard all draws, in a new process."""
        self._kinds: dict[tuple[str, str, int, str, int], int] = {}
        self._drawn: list[int] = []
        self._count = 0
        self._digest = 0

    def add(self, device: str, op: str, numel: int) -> None:
        """Add a draw.

        Args:
            device: the device.
            op: the name of the operation; "manual_seed" where the program seeds the generator.
            numel: the number of elements, or the seed.
        """
        site = self._sites.current(2)
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
        """Record the remaining draws."""
        self._write()
        self._events.emit("draws", count=self._count, digest=f"{self._digest:08x}")
