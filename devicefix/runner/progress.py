"""Show on a terminal how much of the code a long check has checked, and which files take long."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, MutableSequence
from contextlib import ExitStack, contextmanager
from threading import Timer
from typing import TYPE_CHECKING

from devicefix.config.printable import printable_path

if TYPE_CHECKING:
    from typing import TypeAlias

    from rich.console import RenderableType
    from rich.live import Live

    Marks: TypeAlias = MutableSequence[int]  # one for each file

CHECKING, DONE = 1, 2  # the marks of files; 0 before
DELAY = 1.0  # seconds; a faster check shows nothing
SLOW = 2.0  # seconds after which a file is named
MOST = 4  # files that are named at a time
KNOWN = 0.2  # of the code, which must be checked for an estimate of the time for the rest

_here: Marks | dict[int, int] = {}  # what this process marks files in


def mark_in(marks: Marks) -> None:
    """Choose what this process marks files in, which may be memory that other processes share."""
    global _here  # noqa: PLW0603 (a worker process has no other state)
    _here = marks


@contextmanager
def marked(number: int) -> Iterator[None]:
    """Mark a file as being checked, and then as done."""
    _here[number] = CHECKING
    yield
    _here[number] = DONE


class Progress:
    """The progress of a check, which a terminal shows once it takes long.

    Args:
        paths: the files to check.
        stack: removes what is shown.
        quiet: whether to show nothing.
        processes: whether other processes mark the files.

    Attributes:
        sizes: the bytes to check of each file; 0 until they are known.
        marks: how far each file is, in the same order.
    """

    def __init__(self, paths: Iterable[str], stack: ExitStack, *, quiet: bool, processes: bool) -> None:
        self.sizes = dict.fromkeys(paths, 0)
        shown = not quiet and sys.stderr.isatty()
        self.marks: Marks = bytearray(len(self.sizes))
        self._since: dict[str, float] = {}
        self._began = 0.0
        self._live: Live | None = None
        if shown and processes:
            from devicefix.runner.processes import shared_marks

            self.marks = shared_marks(len(self.sizes))
        mark_in(self.marks)
        self._timer = Timer(DELAY, self._show)
        if shown:
            self._timer.start()
            stack.callback(self._hide)

    def _show(self) -> None:
        from rich.console import Console
        from rich.live import Live

        lines, console = self.lines, Console(stderr=True)
        self._live = Live(get_renderable=lines, console=console, transient=True, redirect_stdout=False)
        self._live.start()

    def _hide(self) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._live is not None:
            self._live.stop()

    def lines(self) -> RenderableType:
        """Return what to show: a bar, and the files that take long."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now, files = time.monotonic(), list(zip(self.sizes.items(), self.marks, strict=True))
        self._since = {path: self._since.get(path, now) for (path, _), mark in files if mark == CHECKING}
        if not any(self.marks):
            return Text(f"Reading {len(files):,} files")
        self._began = self._began or now
        part = sum(size for (_, size), mark in files if mark == DONE) / (sum(self.sizes.values()) or 1)
        row = Table.grid(padding=(0, 1, 0, 0))
        left = _left((now - self._began) / part * (1 - part)) if part >= KNOWN else ""
        bar = ProgressBar(1, part, width=40, style="bright_black", complete_style="green")
        row.add_row("Checking", bar, f"{part:.0%}", left)
        slow = [(now - since, path) for path, since in self._since.items() if now - since >= SLOW]
        named = [Text(f"{seconds:4.0f} s  {printable_path(path)}") for seconds, path in sorted(slow)[-MOST:]]
        return Group(row, *named)


def _left(seconds: float) -> str:
    """Return an estimate in words; its digits are not more exact than it is."""
    exact = f"{-(-seconds // 10) * 10:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"
    return f"about {exact} left"
