"""Records where autocast lowers the precision: CUDA and a CPU do so for other operations, or not at all."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch

from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.machine.autocast import low_dtype
from devicefix.verify.runtime.plan import Plan
from devicefix.verify.runtime.site import Sites


def install(_: Plan, events: Events, __: Sites) -> None:
    """Record the devices and dtypes of autocast, in blocks or switched on without one.

    Args:
        events: the recorder of the event `autocast` with `device` and `dtype`, once for each pair. float32
            is no low precision.
    """
    seen = set()
    enter, switch = torch.autocast.__enter__, torch.set_autocast_enabled

    def note(device: str, dtype: torch.dtype) -> None:
        used = device, str(dtype).removeprefix("torch.")
        if dtype != torch.float32 and used not in seen:
            seen.add(used)
            events.emit("autocast", device=used[0], dtype=used[1])

    def __enter__(self: Any) -> Any:
        if self._enabled:
            note(self.device, self.fast_dtype)
        return enter(self)  # type: ignore[no-untyped-call]

    @functools.wraps(switch)
    def set_autocast_enabled(*args: Any, **kwargs: Any) -> Any:
        switch(*args, **kwargs)
        enabled = True in args or kwargs.get("enabled")
        if enabled and not _is_torch(sys._getframe(1).f_globals.get("__name__")):  # as a block does
            named = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, str)]
            note(*((named[0], torch.get_autocast_dtype(named[0])) if named else ("cuda", low_dtype())))

    torch.autocast.__enter__ = __enter__  # type: ignore[method-assign]
    torch.set_autocast_enabled = set_autocast_enabled


def _is_torch(module: Any) -> bool:
    return str(module).partition(".")[0] == "torch"
