"""Files that hold Python among other things: notebooks, and documentation with blocks of code."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from devicefix.config.settings import Settings
    from devicefix.model import Result

NOTEBOOK = ".ipynb"
DOCS = (".md", ".markdown", ".rst")


class Document(Protocol):
    """A file, and the Python in it.

    Attributes:
        modules: what the engine is to look at.
    """

    modules: list[bytes]

    def result(self, path: str, results: list[Result], settings: Settings) -> Result:
        """What has come of the document.

        Args:
            path: where it is.
            results: what has come of its modules, in their order.
            settings: those that the modules were looked at with.

        Returns:
            The findings at their places in the document, and its new bytes where any module changes.
        """


def is_notebook(path: str) -> bool:
    """Whether a path is that of a Jupyter notebook, by its name."""
    return path.endswith(NOTEBOOK)


def is_docs(path: str) -> bool:
    """Whether a path is that of a text in Markdown or reStructuredText, by its name."""
    return path.lower().endswith(DOCS)


def is_document(path: str) -> bool:
    """Whether a path is that of a file that holds Python among other things."""
    return is_notebook(path) or is_docs(path)


def read(data: bytes, path: str) -> Document:
    """A document, by its bytes; its name says of which kind it is."""
    if is_notebook(path):
        from devicefix.files.notebook import Notebook

        return Notebook(data)
    from devicefix.files.markdown import Docs

    return Docs(data, path)


def modules_of(data: bytes, path: str) -> list[bytes]:
    """What the engine is to look at in a file: its modules, or the file itself."""
    return read(data, path).modules if is_document(path) else [data]


def text_of(data: bytes, cell: int | None = None) -> str:
    """The text of a file, or of a cell of a notebook, as far as it can be read: to show, or to compare.

    Args:
        data: the file's bytes.
        cell: the number of the cell, from 1; None for the whole.
    """
    if cell is not None:
        return _cell(data, cell)
    from devicefix.files.text import DecodeError, Source

    try:
        return Source(data).text
    except DecodeError:
        return data.decode(errors="replace")


def _cell(data: bytes, number: int) -> str:
    import json

    with suppress(ValueError, LookupError, TypeError, RecursionError):
        source = json.loads(data)["cells"][number - 1]["source"]
        return source if isinstance(source, str) else "".join(source)
    return ""
