"""The ways in which tensors move between devices, which no number shows.

Event: `move` for each new way, with its `source`, `target`, `options`, `file` and `line`.
"""

from __future__ import annotations

from typing import Any

import torch

from devicefix.verify.runtime.once import Once


class Moves(Once):
    """The moves of one process."""

    def add(self, source: str, target: str, pinned: bool, non_blocking: bool, form: Any) -> None:
        """Add a move.

        Args:
            source: the device that the tensor is on.
            target: the device that it moves to.
            pinned: whether it is in pinned memory.
            non_blocking: whether the program asked for `non_blocking=True`.
            form: the memory format that the program asked for, or None.
        """
        options = ["pinned memory"] if pinned else []
        options += ["non_blocking=True"] if non_blocking else []
        options += [f"memory_format={form}"] if form not in (None, torch.preserve_format) else []
        self.record("move", source=source, target=target, options=tuple(options))
