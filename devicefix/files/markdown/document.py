"""Texts in Markdown and reStructuredText: each block of Python is a separate module."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

from devicefix.files.differences import Differences
from devicefix.files.documents import Unreadable
from devicefix.files.markdown.blocks import Block, in_markdown, in_rst
from devicefix.files.positions import Place, Respell, Where, moved
from devicefix.files.text import TooMuchCode, refuse_much
from devicefix.model import Finding, Result

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_SKIP_FILE = re.compile(r"^[ \t]*(?:<!--|\.\.|#)\s*devicefix:\s*skip-file\b", re.M)


class Docs:
    """A text with blocks of code.

    Args:
        data: the file's bytes.
        path: its suffix decides the language.
        most: how long the code in it may be.
    """

    def __init__(self, data: bytes, path: str, most: int = sys.maxsize) -> None:
        text = data.decode(errors="surrogateescape")
        find = in_rst if path.lower().endswith(".rst") else in_markdown
        self._lines: list[str] = _LINE.findall(text)
        skipped = "skip-file" in text and _SKIP_FILE.search(text)
        found = () if skipped else find([line.rstrip("\r\n") for line in self._lines])
        self._blocks = [block for block in found if self._keeps_lines(block)]
        self.unreadable: list[Unreadable] = []  # blocks are often fragments, which are not reported
        self.modules = [_bytes("".join(self._code(block))) for block in self._blocks]
        try:
            refuse_much(sum(map(len, self.modules)), most)
        except TooMuchCode as problem:
            self.unreadable.append(Unreadable(data, problem))
            self.modules.clear()
            self._blocks.clear()

    def _keeps_lines(self, block: Block) -> bool:
        """Return whether the code has the block's lines: without its indentation, a LF may follow a CR."""
        code = self._code(block)
        return _LINE.findall("".join(code)) == code

    def _code(self, block: Block) -> list[str]:
        """Return the code of a block's lines."""
        lines = self._lines[block.first : block.first + len(block.prefixes)]
        return [line[len(prefix) :] for prefix, line in zip(block.prefixes, lines, strict=True)]

    def result(self, path: str, results: Sequence[Result], problems: Sequence[Finding]) -> Result:
        """Return the findings at their lines, and the changed file; see `Document.result`."""
        fixed: list[Finding] = []
        remaining: list[Finding] = list(problems)
        parts: list[str] = []
        at = shift = 0
        for block, result in zip(self._blocks, results, strict=True):
            code = self._code(block)
            new, prefixes = code, block.prefixes
            if result.output is not None:
                new = _LINE.findall(result.output.decode(errors="surrogateescape"))
                prefixes = list(_prefixes(block, code, new))
            parts += self._lines[at : block.first]
            parts += (prefix + line for prefix, line in zip(prefixes, new, strict=True))
            at = block.first + len(code)
            respell = _indented(block.usual)
            there = _where(block.first + shift, prefixes)
            found, done = moved(result, _where(block.first, block.prefixes), there, respell)
            fixed += done
            remaining += found[len(done) :]
            shift += len(new) - len(code)
        changed = any(result.output is not None for result in results)
        text = "".join([*parts, *self._lines[at:]])
        return Result(path, fixed + remaining, fixed, _bytes(text) if changed else None)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _where(first: int, prefixes: list[str]) -> Where:
    """Return a function that maps a place in a block to its place in the file."""

    def where(line: int, column: int) -> Place:
        before = prefixes[min(line, len(prefixes)) - 1] if prefixes else ""
        return Place(first + line, len(before) + column)

    return where


def _prefixes(block: Block, before: list[str], after: list[str]) -> Iterator[str]:
    """Yield the text before each new line: as before for an unchanged line, else the block's usual prefix."""
    old, usual = block.prefixes, block.usual
    for kind, start, _, first, last in Differences(before, after).get_opcodes():
        for at in range(first, last):
            yield (
                old[start + at - first] if kind == "equal" else usual if after[at].strip() else usual.rstrip()
            )


def _indented(prefix: str) -> Respell:
    """Return a function that indents the lines of an inserted text like the block, but for its first line."""

    def respell(text: str) -> str:
        first, *others = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)
        blank = prefix.rstrip()
        last = len(others) - 1  # the rest of the line that the text is inserted into follows the last one
        lines = (prefix if line.strip() or at == last else blank for at, line in enumerate(others))
        return first + "".join(map(str.__add__, lines, others))

    return respell
