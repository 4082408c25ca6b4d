"""Bytes to text and back without losing one, and positions in the text."""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

_FAITHFUL = {"utf-8", "ascii", "iso-8859-1"}  # what decodes gives the same bytes when it is encoded
_LINE_END = re.compile(r"\r\n|\r|\n")


class DecodeError(Exception):
    """The bytes are no text in the encoding that the file declares."""


def encoded(text: str) -> bytes:
    """A text as the bytes of a file, in the encoding that it declares.

    Raises:
        DecodeError: that has no letters for all of it.
    """
    data = text.encode(errors="surrogatepass")
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        return data if encoding.startswith("utf-8") else text.encode(encoding)
    except SyntaxError:  # whoever reads it will say so
        return data
    except UnicodeError as problem:
        raise DecodeError(str(problem)) from None


class Source:
    """The text of a module, as it stands in the file: line ends are not translated.

    Args:
        data: the file's bytes.

    Raises:
        DecodeError: the bytes do not decode, or the declared encoding is unknown.
    """

    def __init__(self, data: bytes) -> None:
        self._known_columns: dict[int, Sequence[int]] = {}
        self.bom = data.startswith(codecs.BOM_UTF8)
        try:
            self.encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
            if self.bom:
                self.encoding = "utf-8"
                data = data[len(codecs.BOM_UTF8) :]
            self.text = data.decode(self.encoding)
            if self.encoding not in _FAITHFUL and self.text.encode(self.encoding) != data:
                raise DecodeError(f"the bytes would change when they are written again in {self.encoding}")
        except UnicodeDecodeError as problem:
            line = data.count(b"\n", 0, problem.start) + 1
            raise DecodeError(
                f"not {problem.encoding}: byte 0x{data[problem.start]:02x} in line {line}"
            ) from None
        except (SyntaxError, UnicodeError, LookupError) as problem:
            raise DecodeError(str(problem)) from None

    def encode(self, text: str) -> bytes:
        """The bytes of a changed text, in the file's own encoding."""
        return (codecs.BOM_UTF8 if self.bom else b"") + text.encode(self.encoding)

    @cached_property
    def line_starts(self) -> list[int]:
        """Where each line begins, in characters."""
        return [0, *(match.end() for match in _LINE_END.finditer(self.text))]

    @cached_property
    def newline(self) -> str:
        """The line end that the file uses, by its first line."""
        match = _LINE_END.search(self.text)
        return match.group() if match else "\n"

    @cached_property
    def quote(self) -> str:
        """The quotation mark that most of the file's short strings use."""
        # A pattern that begins with what it looks for is found several times as fast as one that looks back.
        singles, doubles = (len(re.findall(rf"{q}(?<![\w'\"\\]{q})(?!{q})", self.text)) for q in ("'", '"'))
        return "'" if singles > doubles else '"'

    def quoted(self, code: str, beside: str = "") -> str:
        """Our own code, whose strings stand in double quotes, in those of the code beside it or the file."""
        used = [quote for quote in "'\"" if quote in beside]
        return code.replace('"', used[0] if len(used) == 1 else self.quote)

    def offset(self, line: int, column: int) -> int:
        """The character at a line (from 1) and a column in UTF-8 bytes, which is how `ast` counts."""
        start = self.line_starts[line - 1]
        if self.text.isascii():  # which takes no time
            return start + column
        return start + bisect_left(self._columns(line), column)

    def _columns(self, line: int) -> Sequence[int]:
        """Where each character of a line begins, and where the last one ends, in UTF-8 bytes."""
        if line not in self._known_columns:
            start = self.line_starts[line - 1]
            text = self.text[start : self.line_end(start)]
            widths = (len(character.encode()) for character in text)
            self._known_columns[line] = (
                range(len(text) + 1) if text.isascii() else [*accumulate(widths, initial=0)]
            )
        return self._known_columns[line]

    def span(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword) -> tuple[int, int]:
        """Where a node stands: its first character and the one after its last."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def code(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1 and in characters, of an offset."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line_end(self, offset: int) -> int:
        """Where the line that holds `offset` ends, before its line end."""
        following = bisect_right(self.line_starts, offset)
        if following == len(self.line_starts):
            return len(self.text)
        end = self.line_starts[following]
        return max(offset, end - (2 if self.text.endswith("\r\n", 0, end) else 1))

    def indentation(self, offset: int) -> str:
        """The white space that the line of `offset` begins with."""
        start = self.line_starts[bisect_right(self.line_starts, offset) - 1]
        match = re.compile(r"[ \t\f]*").match(self.text, start)
        return match.group() if match else ""


def parse(text: str) -> ast.Module:
    """Parse a module, without warnings about its string literals.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the text is not a module.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)
