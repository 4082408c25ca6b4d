"""Hold the open documents of an editor: texts, and notebooks, each cell of which is a text of its own.

A notebook is checked as the file that it would be saved as.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

from lsprotocol import types
from pygls.uris import to_fs_path, uri_scheme
from pygls.workspace import TextDocument, Workspace

from devicefix.files.documents import text_of
from devicefix.files.kinds import Kind, kind_of
from devicefix.model import Replacement
from devicefix.server.text import Text, lines_of

Edits: TypeAlias = "dict[Part, list[types.TextEdit]]"


@dataclass(frozen=True, eq=False)
class Part:
    """A text of the editor.

    Attributes:
        uri: the editor's name for it.
        version: its version.
        text: the text.
        cell: its number in a notebook, from 1 and over cells of all kinds; None for a file.
    """

    uri: str
    version: int | None
    text: Text
    cell: int | None = None


class Snapshot:
    """A document at one time.

    Args:
        source: the text that is checked.
        parts: the texts of the editor that it consists of.
    """

    def __init__(self, source: str, parts: Sequence[Part]) -> None:
        self.source = source
        self.parts = parts

    def part(self, uri: str) -> Part | None:
        """Return the text with a URI, None if it has been removed or is not code."""
        return next((part for part in self.parts if part.uri == uri), None)

    def edits(self, new: str) -> Edits:
        """Return the edits that turn the source into another one.

        Args:
            new: the other source; a notebook of the same cells for a notebook.
        """
        texts = {part: new if part.cell is None else text_of(new.encode(), part.cell) for part in self.parts}
        return {part: part.text.edits(text) for part, text in texts.items() if part.text.text != text}

    def replaced(self, replacements: Iterable[Replacement]) -> Edits:
        """Return the edits that make replacements."""
        parts = {part.cell: part for part in self.parts}
        found: Edits = {}
        for replacement in replacements:
            part = parts[replacement.cell]
            found.setdefault(part, []).append(types.TextEdit(part.text.range(replacement), replacement.text))
        return found


class Document(TextDocument):
    """A text of the editor, split into lines as the protocol defines them.

    pygls also splits at form feeds.
    """

    @property
    def lines(self) -> Sequence[str]:
        """The lines with their line ends."""
        return lines_of(self.source)

    @property
    def file(self) -> str | None:
        """The path, None for a text that was never saved.

        JupyterLab sends the cells of a notebook as one text of Python with the path of the notebook.
        """
        path = path_of(self.uri)
        return f"{path}.py" if path and kind_of(path) is Kind.NOTEBOOK else path

    @property
    def is_json(self) -> bool:
        """Return whether it is the JSON of a notebook, which is checked as a notebook only."""
        return kind_of(path_of(self.uri) or "") is Kind.NOTEBOOK and self.language_id != "python"

    @property
    def snapshot(self) -> Snapshot:
        """The current text."""
        source = self.source
        return Snapshot(source, [Part(self.uri, self.version, Text(source, self.position_codec))])


class Notebook:
    """A notebook of the editor.

    Args:
        uri: the editor's name for it.
        workspace: the texts of the editor.
    """

    def __init__(self, uri: str, workspace: Workspace) -> None:
        self.uri = uri
        self._workspace = workspace

    @property
    def file(self) -> str | None:
        """The path, None for a notebook that was never saved."""
        return path_of(self.uri)

    @property
    def snapshot(self) -> Snapshot:
        """The current texts of the cells."""
        cells: list[dict[str, Any]] = []
        parts: list[Part] = []
        for number, (cell, document) in enumerate(self._cells(), 1):
            is_code = cell.kind is types.NotebookCellKind.Code and document is not None
            source = document.source if is_code and document else ""
            kind = "code" if is_code else "markdown"
            cells.append({"cell_type": kind, "metadata": _metadata(cell, document), "source": source})
            if is_code and document:
                text = Text(source, document.position_codec)
                parts.append(Part(document.uri, document.version, text, number))
        return Snapshot(json.dumps({"nbformat": 4, "metadata": {}, "cells": cells}), parts)

    def _cells(self) -> Iterator[tuple[types.NotebookCell, TextDocument | None]]:
        notebook = self._workspace.get_notebook_document(notebook_uri=self.uri)
        for cell in notebook.cells if notebook else ():
            yield cell, self._workspace.text_documents.get(unquote(cell.document))


def path_of(uri: str) -> str | None:
    """Return the path of a URI, None for a document that was never saved."""
    if uri_scheme(uri) != "file":
        return None
    path = to_fs_path(uri)
    return os.path.normpath(path) if path and "\0" not in path else None


def put_texts(workspace: Workspace, items: Iterable[types.TextDocumentItem]) -> None:
    """Replace new texts, or those of new cells, by those that split lines as the protocol defines them."""
    codec = workspace.position_codec
    for item in items:
        known = workspace.text_documents.get(unquote(item.uri))
        text = known.source if known else item.text
        document = Document(item.uri, text, item.version, item.language_id, position_codec=codec)
        workspace.text_documents[unquote(item.uri)] = document


def _metadata(cell: types.NotebookCell, document: TextDocument | None) -> dict[str, Any]:
    """Return what a saved notebook has about a cell: its tags, and a language that is not the kernel's."""
    given: Any = cell.metadata or {}
    tags = given.get("tags") or (given.get("metadata") or {}).get("tags") or []
    language = document.language_id if document else None
    return {"tags": tags, "vscode": {"languageId": language or "python"}}
