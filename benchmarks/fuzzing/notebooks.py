"""Jupyter notebooks: nothing may change but the sources of cells with code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import patterns

from devicefix.files.notebook.cells import as_python
from devicefix.model import Finding
from fuzzing import commands
from fuzzing.faults import Fault
from fuzzing.files import COMMANDS
from fuzzing.mutation import ODD_VALUES, bytes_changed, value_changed
from fuzzing.programs import LONGEST, Programs, found, text_of
from fuzzing.scratch import Scratch
from fuzzing.surface import checked, fixed_one_by_one, rewritten, settings

NAME = "n.ipynb"
_MAGICS = (
    "%matplotlib inline", "!pip install torch", "%%time", "%%bash", "%%capture out", "%time x.cuda()",
    "x = !ls", "%timeit -n 1 x = x.cuda()", "f?", "??f", "/f x", "if x:\n    !ls \\\n  -l",
    "%time for i in x: i.cuda()", "%%writefile a.py", "!", "%", "%%", "?", "x = %time", "!echo 'it''s",
    "%cd ..\n\n", "x??  # why", "'''\n%time\n'''",
)  # fmt: skip
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s"\[\]{}:,]+', re.S)
_COMMAND = re.compile(r"^[ \t\f]*[%!].*", re.M)

Place = tuple[str | int, ...]


class Notebooks:
    """Notebooks; see `Surface`."""

    suffix = ".ipynb"

    def __init__(self, corpus: Path | None) -> None:
        programs = list(found(corpus, "*.py"))
        self._programs = Programs(programs)
        self._seeds = [
            *found(corpus, "*.ipynb"),
            *(_notebook(Random(data), text_of(data)) for data in programs),
        ]

    def seeds(self) -> Iterable[bytes]:
        """Return the small notebooks, and one of each small program."""
        return self._seeds

    def fresh(self, random: Random) -> bytes:
        """Return a notebook with a new program."""
        return _notebook(random, text_of(self._programs.fresh(random).encode()))

    def changed(self, random: Random, data: bytes) -> bytes:
        """Return a notebook with other code, another structure, or other bytes."""
        if random.random() < 0.2:
            return bytes_changed(random, data)[:LONGEST]
        try:
            content = json.loads(data)
            content = random.choice((self._with_code, self._with_cell, value_changed))(random, content)
            return _dumped(random, content)[:LONGEST]
        except (ValueError, RecursionError, KeyError, IndexError, TypeError, AttributeError):
            return bytes_changed(random, data)[:LONGEST]

    def _with_code(self, random: Random, content: Any) -> Any:
        """Change the code of a cell."""
        cell = random.choice(content["cells"])
        text = self._programs.changed(random, _joined(cell["source"]))
        if random.random() < 0.3:
            lines = text.split("\n")
            lines.insert(random.randint(0, len(lines)), random.choice(_MAGICS))
            text = "\n".join(lines)
        cell["source"] = _source(random, text)
        return content

    def _with_cell(self, random: Random, content: Any) -> Any:
        """Insert a cell, or remove one."""
        cells = content["cells"]
        at = random.randrange(len(cells) + 1)
        if random.random() < 0.3:
            del cells[at]
        else:
            cells.insert(at, _cell(random, self._programs.fresh(random)))
        return content

    def attempt(self, data: bytes, choice: int, scratch: Scratch) -> bool:
        """Check and rewrite a notebook, with one of four settings."""
        options = settings(choice)
        _lie_in_cells(data, checked(data, NAME, options).findings)
        for fixed in fixed_one_by_one(data, NAME, options):
            if not all(patterns.parses(as_python(cell)) for cell in fixed.values()):
                raise Fault("a fix alone breaks a cell")
        output = rewritten(data, NAME, options).output
        if output is not None:
            _nothing_else_changes(data, output)
        if choice // 4 % COMMANDS == 0:
            commands.round_trip(NAME, data, output, options, scratch)
            commands.report(choice // 32, "--no-cache", NAME)
        return output is not None


# -- making notebooks ------------------------------------------------------------------------------------


def _notebook(random: Random, text: str) -> bytes:
    """Return a notebook with the code of a program, in some cells."""
    lines = text.split("\n")
    starts = [at for at, line in enumerate(lines) if line[:1].strip() and line[:1] not in "#)]}"]
    cuts = sorted({0, len(lines), *random.sample(starts, min(len(starts), random.randint(0, 5)))})
    parts = ["\n".join(lines[start:end]) for start, end in pairwise(cuts)]
    cells: list[Any] = []
    for part in parts:
        cells += [_cell(random, random.choice(_MAGICS))] * (random.random() < 0.2)
        cells.append(_cell(random, part))
    content = {"cells": cells, "metadata": _metadata(random), "nbformat": 4, "nbformat_minor": 4}
    return _dumped(random, content)


def _cell(random: Random, text: str) -> dict[str, Any]:
    if random.random() < 0.15:
        return {
            "cell_type": random.choice(("markdown", "raw")),
            "metadata": {},
            "source": _source(random, text),
        }
    metadata = random.choice(({}, {}, {}, {"tags": ["skip-devicefix"]}, {"vscode": {"languageId": "r"}}))
    outputs = random.choice(([], [{"name": "stdout", "output_type": "stream", "text": ["x.cuda()\n"]}]))
    cell = {"cell_type": "code", "execution_count": None, "metadata": metadata, "outputs": outputs}
    items = [*cell.items(), ("source", _source(random, text))]
    random.shuffle(items)
    return dict(items)


def _source(random: Random, text: str) -> Any:
    if random.random() < 0.2:
        return text
    if random.random() < 0.1:
        return [text[:5], text[5:]]
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _metadata(random: Random) -> Any:
    return random.choice(
        (
            {},
            {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
            {"language_info": {"name": random.choice(("python", "Python", "R", "ipython", ""))}},
            {"x": random.choice(ODD_VALUES)},
        )
    )


def _dumped(random: Random, content: Any) -> bytes:
    """Return a notebook as JSON, in one of many forms."""
    text = json.dumps(
        content, indent=random.choice((1, 1, 1, None, 4, "\t")), ensure_ascii=random.random() < 0.3
    )
    if random.random() < 0.1:
        text = re.sub("[<=(]", lambda sign: f"\\u{ord(sign[0]):04x}", text)
    if random.random() < 0.1:
        text = re.sub(r"\n *", "\r\n", text)
    if random.random() < 0.1:
        key = random.choice(("cells", "source", "metadata", "cell_type"))
        text = text.replace(f'"{key}":', f'"{key}": {random.choice(("[]", "null", "3"))}, "{key}":', 1)
    start, end = random.choice(("", "", "", "\ufeff", " ")), random.choice(("\n", "\n", "", " \n\n"))
    return (start + text + end).encode(errors="surrogatepass")


# -- what must hold --------------------------------------------------------------------------------------


def _lie_in_cells(data: bytes, findings: list[Finding]) -> None:
    """Expect that a finding in a cell lies inside it."""
    for finding in findings:
        if finding.code == "DF901":
            continue
        cell = json.loads(data.decode("utf-8-sig"))["cells"][(finding.cell or 0) - 1]
        lines = re.split(r"\r\n|\r|\n", _joined(cell["source"]))
        for line, column in ((finding.line, finding.column), (finding.end_line, finding.end_column)):
            if not (1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1):
                raise Fault(f"a finding outside of its cell: {finding.code}")


def _nothing_else_changes(data: bytes, output: bytes) -> None:
    """Expect that a rewritten notebook differs in the code of its cells only."""
    before, after = data.decode(), output.decode()
    old, new = (json.loads(text.removeprefix("\ufeff"))["cells"] for text in (before, after))
    if len(old) != len(new):
        raise Fault("the notebook has other cells")
    code = [number for number, cell in enumerate(old) if cell.get("cell_type") == "code"]
    if _without(before, code) != _without(after, code):
        raise Fault("changed outside of the code")
    for number in code:
        one, other = (_joined(cells[number].get("source")) for cells in (old, new))
        if _COMMAND.findall(one) != _COMMAND.findall(other) and not _COMMAND.search(_timed(one)):
            raise Fault("a command has changed")
        if other.lstrip().startswith("%%") and one.strip().count("\n") and not other.strip().count("\n"):
            raise Fault("a cell's command has lost its code")
        if one != other and patterns.parses(as_python(one)) and not patterns.parses(as_python(other)):
            raise Fault("the code of a cell no longer parses")


def _joined(source: Any) -> str:
    """Return the text of a cell; empty if it has none."""
    lines = source if isinstance(source, list) else [source]
    return "".join(lines) if all(isinstance(line, str) for line in lines) else ""


def _timed(text: str) -> str:
    """Return a cell with only the commands that hold code."""
    return "\n".join(line for line in _COMMAND.findall(text) if re.match(r"\s*%(?:time|prun|memit)", line))


def _without(text: str, cells: Iterable[int]) -> str:
    """Return the JSON of a notebook without the sources of some cells."""
    spans = dict(_spans(text))
    parts, at = [], 0
    for start, end in sorted(spans[place] for cell in cells if (place := ("cells", cell, "source")) in spans):
        parts.append(text[at:start])
        at = end
    return "".join([*parts, text[at:]])


def _spans(text: str) -> Iterator[tuple[Place, tuple[int, int]]]:
    """Yield the keys and indices that lead to each value in valid JSON, with its span."""
    place: list[str | int] = []
    opened: list[int] = []
    at_key = False
    for token in _TOKEN.finditer(text, text.index("{")):
        sign = token[0]
        if sign in ("{", "["):
            opened.append(token.start())
            place.append(0 if sign == "[" else "")
            at_key = sign == "{"
        elif sign in ("}", "]"):
            place.pop()
            yield tuple(place), (opened.pop(), token.end())
            at_key = False
        elif sign == ",":
            last = place[-1]
            at_key = isinstance(last, str)
            place[-1] = last if isinstance(last, str) else last + 1
        elif sign == ":":
            at_key = False
        elif at_key:
            place[-1] = str(json.loads(sign))
        else:
            yield tuple(place), token.span()
