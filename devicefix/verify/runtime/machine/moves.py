"""The ways in which tensors move between devices, which no number shows.

Event: `move` for each new way, with its `source`, `target`, `options`, `file` and `line`.
"""

from __future__ import annotations

from typing import Any

import torch

from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.site import Sites


class Moves:
    """The moves of one process.

    Args:
        events: the recorder of events.
        sites: finds the user's line.
    """

    def __init__(self, events: Events, sites: Sites) -> None:
        self._events = events
        self._sites = sites
        self.restart()

    def restart(self) -> None:
        """Discard all moves, in a new process."""
        self._seen: set[tuple[Any, ...]] = set()

    def add(self, source: str, target: str, pinned: bool, non_blocking: bool, form: Any) -> None:
        """Add a move.

        Args:
            source: the device that the tensor is on.
            target: the device that it moves to.
            pinned: whether it is in pinned memory.
            non_blocking: whether the program asked for `non_blocking=True`.
            form: the memory format that the program asked for, or None.
        """
        site = self._sites.current(2)
        way = (site.file, site.line, source, target, pinned, non_blocking, form)
        if way in self._seen:
            return
        self._seen.add(way)
        options = ["pinned memory"] if pinned else []
        options += ["non_blocking=True"] if non_blocking else []
        options += [f"memory_format={form}"] if form not in (None, torch.preserve_format) else []
        self._events.emit(
            "move", source=source, target=target, options=options, file=site.file, line=site.line
        )
