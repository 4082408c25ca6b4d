"""Lines of the user's program, for people."""

from __future__ import annotations

import linecache
import os
from collections.abc import Mapping

from devicefix.config.printable import printable
from devicefix.files.system import relative
from devicefix.verify.runtime.notebook import CELL_NAME
from devicefix.verify.verdict import Location


def place(location: Location) -> str:
    """Return a location as `file:line`, relative to the current folder if it is inside it."""
    return f"{shown_path(location.file)}:{location.line}"


def parts(file: str) -> tuple[str, int | None]:
    """Return the path of a file, and the number of the cell if it is one of a notebook."""
    found = CELL_NAME.fullmatch(file)
    return (found["path"], int(found["cell"])) if found else (file, None)


def shown_path(file: str) -> str:
    """Return the path of a file, relative to the current folder if it is inside it."""
    path = relative(file) if os.path.isabs(file) else file
    return printable(file if path.startswith(os.pardir) else path)


def source(location: Location) -> str:
    """Return the text of a line."""
    return printable(linecache.getline(location.file, location.line).strip())


def remember(texts: Mapping[str, str]) -> None:
    """Make `source` know the texts of files, whatever the files hold or whether they exist.

    Args:
        texts: the texts by the paths of the files.
    """
    for file, text in texts.items():
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
