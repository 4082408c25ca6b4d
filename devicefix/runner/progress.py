"""A progress bar on the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

T = TypeVar("T")


class Progress:
    """A progress bar, which appears after a second."""

    def __init__(self, total: int, quiet: bool) -> None:
        self.total = total
        self.done = 0
        self.shown_from = time.monotonic() + 1 if sys.stderr.isatty() and not quiet else float("inf")
        self.bar: Bar | None = None

    def __call__(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, and count them."""
        for item in items:
            self.done += 1
            if time.monotonic() > self.shown_from:
                self._show()
            yield item

    def _show(self) -> None:
        if self.bar is None:
            from rich.console import Console
            from rich.progress import Progress as Bar

            self.bar = Bar(console=Console(stderr=True), transient=True)
            self.bar.add_task("devicefix", total=self.total)
            self.bar.start()
        self.bar.update(self.bar.task_ids[0], completed=self.done)

    def close(self) -> None:
        """Remove the bar from the terminal."""
        if self.bar:
            self.bar.stop()
