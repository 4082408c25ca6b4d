"""Records where autocast lowers the precision, and does so on the simulated CUDA machine as on a CPU.

CUDA and a CPU lower the precision of other operations, or a CPU of none. A run on the simulated CUDA machine
with the precision of a CPU can be compared with a run on a CPU.
"""

from __future__ import annotations

import functools
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from devicefix.verify.runtime.ending import after_fork, at_end
from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.once import Once
from devicefix.verify.runtime.plan import Plan
from devicefix.verify.runtime.site import Site, Sites

OFF, SCALER = "off", "scaler"


def install(plan: Plan, events: Events, sites: Sites) -> None:
    """Record the blocks of autocast and the gradient scalers.

    Args:
        plan: the plan of the run, which may have the uses of a run on a CPU to follow.
        events: the recorder of the event `autocast` with `device`, `what` (the dtype, OFF or SCALER), `file`
            and `line`, once for each.
        sites: finds the user's line.
    """
    uses, made = Once(events, sites), _Made(events)
    on_cpu = None if plan.autocast is None else _OnCPU(plan.autocast, sites)
    enter = torch.autocast.__enter__
    scaler: Any = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler  # since torch 2.3
    make = scaler.__init__

    def __enter__(self: Any) -> Any:
        if on_cpu is not None:
            on_cpu.block(self)
        what = str(self.fast_dtype).removeprefix("torch.") if self._enabled else OFF
        uses.record("autocast", device=self.device, what=what)
        return enter(self)  # type: ignore[no-untyped-call]

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if on_cpu is not None:
            on_cpu.scaler(self)
        if self._enabled:
            uses.record("autocast", device=_device(self), what=SCALER)
            made.add(self, sites.current())

    torch.autocast.__enter__ = __enter__  # type: ignore[method-assign]
    scaler.__init__ = __init__


class _Made:
    """The gradient scalers that the program makes, whose last states are recorded.

    Args:
        events: the recorder of the event `scaler` with `state`, `file` and `line`.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._scalers: list[tuple[Any, Site]] = []
        at_end(self._finish)
        after_fork(self._scalers.clear)

    def add(self, scaler: Any, site: Site) -> None:
        """Add a scaler, and the line that makes it."""
        self._scalers.append((scaler, site))

    def _finish(self) -> None:
        for scaler, site in self._scalers:
            state = f"the scale {scaler.get_scale():g} for {scaler._get_growth_tracker()} steps"
            self._events.emit("scaler", state=state, file=site.file, line=site.line)


class _OnCPU:
    """Autocast for CUDA as the same lines use it on a CPU.

    Args:
        uses: the file, line and `what` of each use in a run on a CPU.
        sites: finds the user's line.
    """

    def __init__(self, uses: Iterable[Sequence[Any]], sites: Sites) -> None:
        self._sites = sites
        self._uses: dict[tuple[str, int], set[str]] = defaultdict(set)
        for file, line, what in uses:
            self._uses[os.path.realpath(file), line].add(what)

    def block(self, block: Any) -> None:
        """Change a block before the program enters it."""
        if block.device != "cuda":
            return
        found = self._here()
        dtypes = found - {OFF, SCALER}
        if found:
            block.device = "cpu"
        if len(dtypes) == 1:  # the default is another one on a CPU
            block.fast_dtype = getattr(torch, *dtypes)
        if not dtypes:
            block._enabled = False

    def scaler(self, scaler: Any) -> None:
        """Switch a new gradient scaler off if it is off on a CPU."""
        if _device(scaler) == "cuda" and SCALER not in self._here():
            scaler._enabled = False

    def _here(self) -> set[str]:
        """Return the uses of the running line."""
        site = self._sites.current()
        return self._uses.get((os.path.realpath(site.file), site.line), set())


def _device(scaler: Any) -> str:
    return str(getattr(scaler, "_device", "cuda")).partition(":")[
        0
    ]  # older versions have scalers for CUDA only
