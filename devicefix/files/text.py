"""Decode files and encode them again without changing a byte, and convert positions."""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate, product
from string import ascii_lowercase

from devicefix.config.sizes import CODE, shown

_FAITHFUL = {"utf-8", "ascii", "iso-8859-1"}  # encoding a decoded text always gives the same bytes
Change = tuple[int, int, str]  # the start and the end of a part of a text, and what replaces it
LINE_END = re.compile(r"\r\n|\r|\n")
_LONG_NUMBER = re.compile(r"0[xXoObB][\da-fA-F_]{3500}")  # Python reads it, and can't write it


class DecodeError(Exception):
    """The bytes cannot be decoded in the encoding that the file declares."""


# What the bytes of a file that is not a module raise, when they are decoded and parsed.
UNREADABLE = (DecodeError, SyntaxError, ValueError, RecursionError, MemoryError)


class TooMuchCode(ValueError):
    """Code whose facts may take all memory; the message says what to do."""


def refuse_much(length: int, most: int) -> None:
    """Refuse code that is too long.

    Raises:
        TooMuchCode: it is longer than `most`.
    """
    if length > most:
        needed = -(-CODE * length // 2**20)
        advice = f"exclude the file, or use --max-file-size {needed}M"
        raise TooMuchCode(f"the code is larger than {shown(most)}; {advice}")


def replaced(text: str, changes: Iterable[Change]) -> str:
    """Return a text with changes made that neither nest nor overlap."""
    parts, at = [], 0
    for start, end, new in changes:
        parts += [text[at:start], new]
        at = end
    return "".join([*parts, text[at:]])


def encoded(text: str) -> bytes:
    """Encode a text in the encoding that it declares.

    Raises:
        DecodeError: the encoding lacks a character of the text.
    """
    data = text.encode(errors="surrogatepass")
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        return data if encoding.startswith("utf-8") else text.encode(encoding)
    except SyntaxError:  # reading it reports that
        return data
    except UnicodeError as problem:
        raise DecodeError(str(problem)) from None


class Source:
    """The text of a module, with its line ends as they are.

    Args:
        data: the file's bytes.

    Raises:
        DecodeError: the bytes do not decode, or the declared encoding is unknown.
    """

    def __init__(self, data: bytes) -> None:
        self._known_columns: dict[int, Sequence[int]] = {}
        self._held: dict[str | re.Pattern[str], bool] = {}
        self.bom = data.startswith(codecs.BOM_UTF8)
        try:
            self.encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
            if self.bom:
                self.encoding = "utf-8"
                data = data[len(codecs.BOM_UTF8) :]
            self.text = data.decode(self.encoding)
            if self.encoding not in _FAITHFUL and self.text.encode(self.encoding) != data:
                raise DecodeError(f"encoding the text in {self.encoding} again would change its bytes")
        except UnicodeDecodeError as problem:
            line = data.count(b"\n", 0, problem.start) + 1
            byte = f"byte 0x{data[problem.start]:02x} on line {line}"
            raise DecodeError(f"{byte} is not valid {problem.encoding}") from None
        except (SyntaxError, UnicodeError, LookupError) as problem:
            raise DecodeError(str(problem)) from None

    def encode(self, text: str) -> bytes:
        """Encode a changed text in the encoding of the file."""
        return (codecs.BOM_UTF8 if self.bom else b"") + text.encode(self.encoding)

    def holds(self, word: str | re.Pattern[str]) -> bool:
        """Return whether the text holds a word or a match, from a cache: it may be asked at each node."""
        if word not in self._held:
            self._held[word] = word in self.text if isinstance(word, str) else bool(word.search(self.text))
        return self._held[word]

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset of the start of each line, in characters."""
        if "\r" in self.text:
            return [0, *(match.end() for match in LINE_END.finditer(self.text))]
        lengths = map(len, self.text.split("\n"))  # several times as fast
        return [start + line for line, start in enumerate(accumulate(lengths, initial=0))][:-1]

    @cached_property
    def newline(self) -> str:
        """The line end of the file's first line."""
        match = LINE_END.search(self.text)
        return match.group() if match else "\n"

    @cached_property
    def quote(self) -> str:
        """The quotation mark of most of the file's short strings."""
        # Starting with the quotation mark is several times as fast as a lookbehind.
        singles, doubles = (len(re.findall(rf"{q}(?<![\w'\"\\]{q})(?!{q})", self.text)) for q in ("'", '"'))
        return "'" if singles > doubles else '"'

    def quoted(self, code: str, replaced: str = "") -> str:
        """Return inserted code with the quotation marks of the code that it replaces, or of the file."""
        used = [quote for quote in "'\"" if quote in replaced]
        return code.replace('"', used[0] if len(used) == 1 else self.quote)

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a position as `ast` counts: lines from 1, columns in UTF-8 bytes."""
        start = self.line_starts[line - 1]
        if self.text.isascii():  # asking that takes no time
            return start + column
        return start + bisect_left(self._columns(line), column)

    def _columns(self, line: int) -> Sequence[int]:
        """Return where each character of a line starts, and where the last one ends, in UTF-8 bytes."""
        if line not in self._known_columns:
            start = self.line_starts[line - 1]
            text = self.text[start : self.line_end(start)]
            widths = (len(character.encode()) for character in text)
            columns = range(len(text) + 1) if text.isascii() else [*accumulate(widths, initial=0)]
            self._known_columns[line] = columns
        return self._known_columns[line]

    def span(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias) -> tuple[int, int]:
        """Return the offsets of a node's first character and of the one after its last."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def code(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of an offset, both from 1 and in characters."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line_end(self, offset: int) -> int:
        """Return the offset where the line at `offset` ends, before its line end."""
        following = bisect_right(self.line_starts, offset)
        if following == len(self.line_starts):
            return len(self.text)
        end = self.line_starts[following]
        return max(offset, end - (2 if self.text.endswith("\r\n", 0, end) else 1))

    def indentation(self, offset: int) -> str:
        """Return the indentation of the line at `offset`."""
        start = self.line_starts[bisect_right(self.line_starts, offset) - 1]
        match = re.compile(r"[ \t\f]*").match(self.text, start)
        return match.group() if match else ""


def parse(text: str) -> ast.Module:
    """Parse a module, without warnings about its string literals.

    Names may be called `async`, which is a keyword since Python 3.7: https://docs.python.org/3/whatsnew/3.7.html.
    Before Python 3.14, template strings are parsed as f-strings: https://peps.python.org/pep-0750/.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the text is not a module.
    """
    if _LONG_NUMBER.search(text):
        raise ValueError("a number has too many digits")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except SyntaxError:
            if (as_f_strings := re.sub(r"(?<![\w'\"])([rR]?)[tT](?=[rR]?['\"])", r"\1f", text)) != text:
                return parse(as_f_strings)
            places = [*_old_names(text)] if _OLD_NAME in text else []
            if not places:
                raise
        stand_in = _stand_in(text)
        return _with_old_names(ast.parse(_renamed(text, places, stand_in)), stand_in)


def tokens(text: str) -> Iterator[tuple[int, tokenize.TokenInfo]]:
    """Yield the tokens of code, each after its offset."""
    lines = io.StringIO(re.sub(r"\r(?!\n)", "\n", text)).readlines()
    starts = [*accumulate(map(len, lines), initial=0)]
    for token in tokenize.generate_tokens(iter(lines).__next__):
        yield starts[token.start[0] - 1] + token.start[1], token


# -- `async` as a name -----------------------------------------------------------------------------------

_OLD_NAME = "async"
_OLD_NAME_IN_PART = re.compile(r"\basync\b(?!(?:\s|\\|#[^\r\n]*[\r\n])+(?:def|for|with)\b)")


def without_old_names(change: Callable[[str], str]) -> Callable[[str], str]:
    """Return a change of code that parses it, for code in which names may be called `async`."""

    def changed(text: str) -> str:
        if _OLD_NAME not in text:
            return change(text)
        stand_in = _stand_in(text)
        places = [match.start() for match in _OLD_NAME_IN_PART.finditer(text)]
        return change(_renamed(text, places, stand_in)).replace(stand_in, _OLD_NAME)

    return changed


def _old_names(text: str) -> Iterator[int]:
    """Yield the offsets of the names `async` in a module, as far as it has tokens."""
    before: int | None = None
    with suppress(tokenize.TokenError, SyntaxError):
        for at, token in tokens(text):
            if before is not None and token.string not in ("def", "for", "with"):
                yield before
            before = at if token.string == _OLD_NAME else None


def _stand_in(text: str) -> str:
    """Return a name as long as `async`, so that no position changes, that a text does not contain."""
    names = map("".join, product(ascii_lowercase, repeat=len(_OLD_NAME)))
    return next(name for name in names if name not in text)


def _renamed(text: str, places: Iterable[int], name: str) -> str:
    """Return a text with another name at the places of `async`."""
    return replaced(text, ((place, place + len(name), name) for place in places))


def _with_old_names(module: ast.Module, stand_in: str) -> ast.Module:
    """Return a syntax tree in which the names of a stand-in are `async` again."""
    for node in ast.walk(module):
        for field, value in () if isinstance(node, ast.Constant) else ast.iter_fields(node):
            if isinstance(value, str):
                setattr(node, field, value.replace(stand_in, _OLD_NAME))
            elif isinstance(node, (ast.Global, ast.Nonlocal)):
                node.names = [name.replace(stand_in, _OLD_NAME) for name in value]
    return module
