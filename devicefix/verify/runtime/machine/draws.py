"""The order of random draws, which matters since each GPU has its own generator.

Events: `draw` for each new kind (device, operation, number of elements, line) with its `number`; `drawn` with
the kinds in the order of drawing, in blocks.
"""

from __future__ import annotations

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
        self._drawn.append(number)
        if len(self._drawn) >= _BLOCK:
            self.finish()

    def finish(self) -> None:
        """Record the draws since the last block."""
        if self._drawn:
            self._events.emit("drawn", numbers=self._drawn)
            self._drawn = []
