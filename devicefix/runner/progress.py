"""A progress bar on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

FROM = 200  # files; fewer are checked in about a second


def progress(total: int, quiet: bool, stack: ExitStack) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function that yields items and counts them in a progress bar, which the stack removes."""
    if quiet or total < FROM or not sys.stderr.isatty():
        return iter
    from rich.console import Console
    from rich.progress import Progress

    bar = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
    task = bar.add_task("devicefix", total=total)

    def counted(items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            bar.advance(task)
            yield item

    return counted
