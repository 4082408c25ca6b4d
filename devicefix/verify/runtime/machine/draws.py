"""The order of random draws, which matters since each GPU has its own generator.

Events: `draw` for each new kind (device, operation, number of elements, line) with its `number`; `drawn` with
the kinds in the order of drawing, in blocks.
"""

from __future__ import annotations

from devicefix.verify.runtime.once import Once

_BLOCK = 4096


class Draws(Once):
    """The random draws of one process."""

    def restart(self) -> None:
        """Discard all draws, in a new process."""
        super().restart()
        self._drawn: list[int] = []

    def add(self, device: str, op: str, numel: int) -> None:
        """Add a draw.

        Args:
            device: the device.
            op: the name of the operation; "manual_seed" where the program seeds the generator.
            numel: the number of elements, or the seed.
        """
        self._drawn.append(self.record("draw", device=device, op=op, numel=numel))
        if len(self._drawn) >= _BLOCK:
            self.finish()

    def finish(self) -> None:
        """Record the draws since the last block."""
        if self._drawn:
            self._events.emit("drawn", numbers=self._drawn)
            self._drawn = []
