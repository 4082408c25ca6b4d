"""Temporary folders of runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devicefix.verify import signals


@contextmanager
def temporary_folder(parent: str | None = None) -> Iterator[Path]:
    """Make a folder that is removed at the end, whatever a program has made of it.

    Args:
        parent: the folder to make it in; None for the one for temporary files.
    """
    hidden = "" if parent in (None, tempfile.gettempdir()) else "."
    with signals.held():
        folder = tempfile.TemporaryDirectory(
            prefix=f"{hidden}devicefix-", dir=parent, ignore_cleanup_errors=True
        )
    try:
        yield Path(os.path.realpath(folder.name))
    finally:
        with signals.held():
            folder.cleanup()
