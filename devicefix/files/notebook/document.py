"""Jupyter notebooks: their cells are one module, since they share a namespace.

The format is https://nbformat.readthedocs.io/en/stable/format_description.html.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from devicefix.files.documents import NotANotebook, Unreadable
from devicefix.files.notebook.cells import Joined, Unmasked, as_python, cell_lines, is_masked
from devicefix.files.notebook.json_text import sources, with_lines
from devicefix.files.notebook.magics import is_python, with_code
from devicefix.files.positions import Lines, Place, Where, moved
from devicefix.files.text import TooMuchCode, parse, refuse_much, replaced
from devicefix.model import Finding, Result, SelfCheckError

# A tag, named as nbQA's are: https://nbqa.readthedocs.io/en/latest/configuration.html
SKIP = "skip-devicefix"
_PYTHON = ("python", "ipython")
_BOM = "\ufeff"


class Notebook:
    """A notebook; see `Document`.

    Args:
        data: the file's bytes.
        most: how long the code in it may be.
    """

    def __init__(self, data: bytes, most: int = sys.maxsize) -> None:
        self.modules: list[bytes] = []
        self.unreadable: list[Unreadable] = []
        try:
            self._text, cells = _read(data)
            refuse_much(sum(map(len, cells.values())), most)
        except (NotANotebook, TooMuchCode) as problem:
            self.unreadable.append(Unreadable(data, problem))
            return
        self._cells = {number: cell for number, cell in cells.items() if self._is_sound(number, cell)}
        self._joined = Joined(self._cells.values())
        self.modules.append(self._joined.text.encode())

    @property
    def lines(self) -> list[tuple[int, int]]:
        """The number of the cell and the line in it for each line of the module."""
        return cell_lines(self._joined, list(self._cells)) if self.modules else []

    def _is_sound(self, number: int, cell: str) -> bool:
        """Return whether a cell can be checked; one that cannot be parsed is noted."""
        problem = _problem(cell)
        if problem is not None:
            self.unreadable.append(Unreadable(cell.encode(errors="replace"), problem, number))
            return False
        return not is_masked(cell)

    def result(self, path: str, results: Sequence[Result], problems: Sequence[Finding]) -> Result:
        """Return the findings at their lines in their cells, and the changed file; see `Document.result`."""
        if not results:
            return Result(path, list(problems))
        (result,) = results
        old = new = self._joined.text
        unmasked = after = self._joined.unmasked(old)
        if result.output is not None:
            new = result.output.decode()
            after = self._joined.unmasked(new)
            if Joined(after.cells).magics != self._joined.magics:
                raise SelfCheckError("would have other commands")
        before, now = self._places(old, unmasked), self._places(new, after)
        found, fixed = moved(result, before, now, self._joined.restored)
        remaining = sorted([*found[len(fixed) :], *problems], key=_order)
        output = None if result.output is None else self._written(after.cells)
        return Result(path, fixed + remaining, fixed, output)

    def _places(self, text: str, unmasked: Unmasked) -> Where:
        """Return a function that maps a place in the module to its place in the notebook."""
        lines = Lines(text)
        numbers = list(self._cells)
        cells = [Lines(cell) for cell in unmasked.cells]

        def where(line: int, column: int) -> Place:
            index, offset = unmasked.place(lines.offset(line, column))
            return Place(*cells[index].position(offset), numbers[index])

        return where

    def _written(self, new: list[str]) -> bytes:
        """Return the file with new texts in the checked cells."""
        pairs = zip(self._cells.items(), new, strict=True)
        changed = {number: with_code(after) for (number, before), after in pairs if before != after}
        spans = list(sources(self._text))
        places = ((spans[number - 1], after) for number, after in changed.items())
        edits = ((*source, with_lines(self._text, source, after)) for source, after in places)
        text = replaced(self._text, edits)
        expected = _python_cells(self._text) | changed
        if _python_cells(text) != {number: cell for number, cell in expected.items() if cell.strip()}:
            raise SelfCheckError("is not the expected notebook")
        return text.encode()


def _order(finding: Finding) -> tuple[int, int, int]:
    return finding.cell or 0, finding.line, finding.column


def _read(data: bytes) -> tuple[str, dict[int, str]]:
    """Return the text of a notebook, and its cells with Python by their numbers.

    Raises:
        NotANotebook: it is not a notebook, or of a format before 4, which is of 2014.
    """
    try:
        text = data.decode()
        return text, _python_cells(text)
    except json.JSONDecodeError as problem:
        why = f"the notebook is not valid JSON: {problem.msg.removesuffix(' at')}"
        raise NotANotebook(why, (problem.lineno, problem.colno)) from None
    except UnicodeDecodeError:
        raise NotANotebook("the notebook is not valid UTF-8") from None
    except RecursionError:
        raise NotANotebook("the notebook is nested too deeply") from None
    except NotANotebook:
        raise
    except ValueError:
        raise NotANotebook("a number has too many digits") from None


def _python_cells(text: str) -> dict[int, str]:
    """Return the cells with Python in a notebook, by their numbers.

    Raises:
        ValueError: it is not a notebook, or of a format before 4, which is of 2014.
    """
    notebook = json.loads(text.removeprefix(_BOM))
    if not isinstance(notebook, dict) or not isinstance(notebook.get("nbformat"), int):
        raise NotANotebook("this is not a Jupyter notebook")
    if notebook["nbformat"] < 4:
        raise NotANotebook(
            f"the notebook has format {notebook['nbformat']}; to convert it, save it in Jupyter or run"
            " `jupyter nbconvert --to notebook --inplace`"
        )
    if str(_language(notebook) or "python").lower() not in _PYTHON:
        return {}
    cells = notebook.get("cells")
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise NotANotebook("the notebook has no list of cells")
    texts = ((number, _python(cell)) for number, cell in enumerate(cells, 1))
    return {number: text for number, text in texts if text is not None}


def _language(notebook: dict[str, Any]) -> object:
    """Return the language of a notebook's kernel, if it is known."""
    named = _get(notebook, "metadata", "language_info", "name")
    return named or _get(notebook, "metadata", "kernelspec", "language")


def _python(cell: dict[str, Any]) -> str | None:
    """Return a cell's text, if it is Python for the notebook's kernel and not empty."""
    source, tags = _code(cell), _get(cell, "metadata", "tags")
    skipped = isinstance(tags, list) and SKIP in tags
    return source if source is not None and is_python(source) and not skipped else None


def _code(cell: dict[str, Any]) -> str | None:
    """Return a cell's text, if it is code in the language of the notebook's kernel and not empty."""
    source = cell.get("source")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if cell.get("cell_type") != "code" or not isinstance(source, str) or not source.strip():
        return None
    # VS Code notes the language of a cell if it is not the kernel's.
    other = _get(cell, "metadata", "vscode", "languageId") or "python"
    return source if other == "python" else None


def _get(value: Any, *keys: str) -> Any:
    """Return the value at a path of keys, None if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def code_cells(data: bytes) -> dict[int, tuple[str, bool]]:
    """Return the texts of a Python notebook's code cells by their numbers, and whether each can be rewritten.

    Raises:
        NotANotebook: it is not a notebook with Python, or of a format before 4, which is of 2014.
    """
    text, python = _read(data)
    notebook = json.loads(text.removeprefix(_BOM))
    if str(_language(notebook) or "python").lower() not in _PYTHON:
        raise NotANotebook(f"the notebook's language is {_language(notebook)}")
    found = {}
    for number, source in enumerate(map(_code, notebook["cells"]), 1):
        if source is not None:
            found[number] = source, number in python and _problem(source) is None and not is_masked(source)
    return found


def _problem(cell: str) -> Exception | None:
    """Return why a cell cannot be parsed."""
    try:
        cell.encode()
        parse(as_python(cell))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        return problem
    return None
