"""Records where autocast lowers the precision: CUDA and a CPU do so for other operations, or not at all."""

from __future__ import annotations

from typing import Any

import torch

from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.plan import Plan
from devicefix.verify.runtime.site import Sites


def install(_: Plan, events: Events, __: Sites) -> None:
    """Record the devices and dtypes of the autocast blocks that the program enters.

    Args:
        events: the recorder of the event `autocast` with `device` and `dtype`, once for each pair.
    """
    seen = set()
    enter = torch.autocast.__enter__

    def __enter__(self: Any) -> Any:
        used = self.device, str(self.fast_dtype).removeprefix("torch.")
        if self._enabled and used not in seen:
            seen.add(used)
            events.emit("autocast", device=used[0], dtype=used[1])
        return enter(self)  # type: ignore[no-untyped-call]

    torch.autocast.__enter__ = __enter__  # type: ignore[method-assign]
