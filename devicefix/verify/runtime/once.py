"""Events of what lines of the program do, each recorded once."""

from __future__ import annotations

from typing import Any

from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.site import Sites


class Once:
    """The recorder of what the lines do in one process.

    Args:
        events: the recorder of events.
        sites: finds the user's line.
    """

    def __init__(self, events: Events, sites: Sites) -> None:
        self._events = events
        self._sites = sites
        self.restart()

    def restart(self) -> None:
        """Forget what is recorded, in a new process."""
        self._known: dict[tuple[Any, ...], int] = {}

    def record(self, kind: str, **fields: Any) -> int:
        """Record that the running line does something, unless it is known, and return its number.

        Args:
            kind: the kind of event.
            **fields: its fields; `number`, `file` and `line` are added.
        """
        site = self._sites.current(2)
        does = (site.file, site.line, *fields.values())
        if does not in self._known:
            number = self._known[does] = len(self._known)
            self._events.emit(kind, **fields, number=number, file=site.file, line=site.line)
        return self._known[does]
