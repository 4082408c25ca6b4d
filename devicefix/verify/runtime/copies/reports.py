"""Reports of copy hazards, as events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from devicefix.verify.runtime.copies.memory import Change, Move, Replica, between
from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.site import Site


class Reports:
    """The recorder of copy hazards and of errors in the watch.

    Args:
        events: the recorder of events.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._reported: set[tuple[Any, ...]] = set()
        self._failed = False
        # The program's own classes see only its own calls. At its end, Python clears the globals before the
        # last tensors are gone.
        self._quiet = torch._C.DisableTorchFunctionSubclass

    def guarded(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call a function of the watch, whose errors must not reach the program.

        Args:
            call: the function.
            *args: its arguments.

        Returns:
            The result, or None after an error. The first error is recorded.
        """
        try:
            with self._quiet():
                return call(*args)
        except Exception as error:
            if not self._failed:
                self._failed = True
                self._events.emit("trouble", where="copies", message=f"{type(error).__name__}: {error}")
            return None

    def hazard(self, what: str, move: Move, changed: Site | None) -> None:
        """Record a copy hazard, unless it has been recorded already.

        Args:
            what: "tensor", "numpy view" or "numpy buffer".
            move: the call that copies on CUDA.
            changed: the line that changes one side, or None if it is unknown.
        """
        key = (move.site, changed)
        if key not in self._reported:
            self._reported.add(key)
            sites = {"moved": _fields(move.site), "changed": _fields(changed)}
            self._events.emit("copy", what=what, move=move.text, **sites)

    def stale(self, replica: Replica, change: Change) -> None:
        """Record the hazard that a replica is read after a change in another one."""
        move = between(replica, change.replica)
        if move is None:
            return
        if change.numpy and change.replica.move is None:
            what = "numpy buffer"
        else:
            what = "numpy view" if replica.exported or change.numpy else "tensor"
        self.hazard(what, move, change.site)


def _fields(site: Site | None) -> dict[str, Any] | None:
    return None if site is None else {"file": site.file, "line": site.line}
