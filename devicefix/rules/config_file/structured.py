"""A scanner for keys and values of YAML, JSON and TOML, with their positions.

The parsers of the standard library give no positions, and reject a file because of a template, a comment or a tab.
This scanner distinguishes keys from strings, comments and block texts, and skips anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """A key with its value or values; `start` and `end` are their offsets in the text."""

    key: str
    values: tuple[str, ...]
    start: int
    end: int
    several: bool = False  # a list, even of one value
    shell: bool = False


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # "word", or the character itself
    text: str
    start: int
    end: int


# A string that is not closed ends with its line: to look for its end again at each quote in it takes long.
_STRING = r'"(?:\\.|[^"\\\n])*"?|\'(?:\\.|[^\'\\\n])*\'?'
_JSON = re.compile(
    rf"(?P<skip>//[^\n]*|/\*.*?(?:\*/|\Z)|\#[^\n]*)|(?P<word>{_STRING}|[^\s{{}}\[\](),:\"'#/][^\s{{}}\[\](),:\"'#]*)|[{{}}\[\](),:]",
    re.S,
)
_TOML = re.compile(
    rf'(?P<skip>\#[^\n]*|"""(?:\\.|[^\\])*?(?:"""|\Z)|\'\'\'.*?(?:\'\'\'|\Z))|(?P<word>{_STRING}|[^\s{{}}\[\](),=\"\'#]+)|[{{}}\[\](),=\n]',
    re.S,
)
# In the brackets of YAML, a word may contain spaces and colons; `''` is a quote in single quotes.
_FLOW = re.compile(
    r'(?P<skip>(?:^|(?<=\s))\#[^\n]*|[&!]\S+)|(?P<word>"(?:\\.|[^"\\])*"?|\'(?:\'\'|[^\'])*\'?'
    r"|(?:[^\s,\[\]{}:#\"']|:(?=[^\s,\[\]{}]))(?:[^,\[\]{}:\n#]|:(?=[^\s,\[\]{}])|(?<=\S)\#)*)|[{}\[\],:]",
    re.M,
)
_OPENING, _CLOSING = "[({", "])}"
_MANY = 1000  # list items, and unclosed brackets; a file with more contains data, or is not YAML
_LONGEST_KEY = 200  # characters
_FAR = 20_000  # characters in which brackets and quotes must be closed; longer lines are skipped


def json_pairs(text: str) -> Iterator[Pair]:
    """Yield the pairs of JSON, with or without comments."""
    yield from _pairs(list(_tokens(_JSON, text)), ":")


def toml_pairs(text: str) -> Iterator[Pair]:
    """Yield the pairs of TOML."""
    yield from _pairs(list(_tokens(_TOML, text)), "=")


def _tokens(pattern: re.Pattern[str], text: str, start: int = 0, end: int | None = None) -> Iterator[_Token]:
    for match in pattern.finditer(text, start, len(text) if end is None else min(end, len(text))):
        if match.lastgroup == "word":
            word = match.group().rstrip()
            yield _Token("word", word, match.start(), match.start() + len(word))
        elif match.lastgroup is None:
            yield _Token(match.group(), match.group(), *match.span())


def _pairs(tokens: list[_Token], separator: str) -> Iterator[Pair]:
    for index in range(1, len(tokens) - 1):
        key, colon, value = tokens[index - 1], tokens[index], tokens[index + 1]
        if colon.kind != separator or key.kind != "word":
            continue
        if value.kind == "word":
            yield Pair(plain(key.text), (plain(value.text),), key.start, value.end)
        elif value.kind in "[(":
            items, end = _items(tokens, index + 2)
            if items:
                yield Pair(plain(key.text), items, key.start, end, several=True)


def _items(tokens: list[_Token], index: int) -> tuple[tuple[str, ...], int]:
    """Return the words of a list and its end; no words if it contains anything else."""
    items = []
    for token in tokens[index : index + _MANY]:
        if token.kind == "word":
            items.append(plain(token.text))
        elif token.kind in "])":
            return tuple(items), token.end
        elif token.kind not in ",\n":
            break
    return (), 0


def plain(word: str) -> str:
    """Return a word without its quotes."""
    return word[1:-1] if len(word) > 1 and word[0] in "'\"" and word[-1] == word[0] else word


# -- YAML ---------------------------------------------------------------------------------------------

_DASHES = re.compile(r"(?:[-?][ \t]+)*")
_KEY = re.compile(
    r"(?P<key>\"(?:\\.|[^\"\\\n])*\"|'(?:''|[^'\n])*'|[^\s\[\]{},#&*!|>'\"%@`:](?:[^\n:#]|:(?=\S)|(?<=\S)\#)*?)"
    r"[ \t]*:(?=\s|\Z)[ \t]*"
)
_PROPERTIES = re.compile(r"(?:[&!]\S*[ \t]+)*")
_BLOCK = re.compile(r"[|>][-+\d]*[ \t]*(?:\#.*)?$")
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:''|[^'])*'", re.S)
_PLAIN = re.compile(r"(?:[^\s#]|(?<=\S)\#|[ \t]+(?![\s#]|\Z))+")


def yaml_pairs(text: str) -> Iterator[Pair]:
    """Yield the pairs of YAML."""
    yield from _Yaml(text).pairs()


class _Yaml:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.block: int | None = None  # the indentation of the key of a block text
        self.listed: tuple[str, int, int] | None = None  # a key without a value: text, column, offset
        self.items: list[str] = []
        self.items_end = 0
        self.unclosed = 0

    def pairs(self) -> Iterator[Pair]:
        while self.at < len(self.text):
            start = self.at
            end = self.text.find("\n", start)
            self.at = end = len(self.text) if end < 0 else end + 1
            line = self.text[start:end].rstrip()
            column = len(line) - len(line.lstrip(" "))
            if not line.strip() or len(line) > _FAR // 4:
                continue
            if self.block is not None:
                if column > self.block:
                    continue
                self.block = None
            if line.lstrip()[0] in "#%" or line.startswith(("---", "...")):
                if line.startswith("--- ") and _BLOCK.search(line):
                    self.block = -1
                continue
            yield from self.line(start, line, column)
        yield from self.collected()

    def line(self, start: int, line: str, column: int) -> Iterator[Pair]:
        dashes = _DASHES.match(self.text, start + column, start + len(line))
        assert dashes is not None
        inner = dashes.end()
        if self.listed and (column < self.listed[1] or (not dashes.group() and column == self.listed[1])):
            yield from self.collected()
        key = _KEY.match(self.text, inner, min(start + len(line), inner + _LONGEST_KEY))
        if key is not None:
            yield from self.collected()
            inside = inner - start
            yield from self.value(key["key"], inner, key.end(), start + len(line), inside)
        elif dashes.group():
            value, end = self.scalar(inner, start + len(line))
            if value is None:
                self.listed = None
            if self.block_begins(inner, start + len(line)):
                self.block = column
            elif self.text[inner : inner + 1] in ("[", "{"):
                yield from self.flow(inner)
            elif value is not None and self.listed:
                self.items.append(value)
                self.items_end = end
        elif self.text[inner] in "[{":
            yield from self.flow(inner)

    def value(self, key: str, start: int, at: int, end: int, column: int) -> Iterator[Pair]:
        """Yield the pair of a key and the value after it."""
        properties = _PROPERTIES.match(self.text, at, end)
        at = properties.end() if properties else at
        if at >= end or self.text[at] == "#":
            self.listed = key, column, start
        elif self.block_begins(at, end):
            self.block = column
        elif self.text[at] in "[{":
            yield from self.flow(at, key, start)
        else:
            value, stop = self.scalar(at, end)
            if value is not None:
                yield Pair(plain(key), (value,), start, stop)

    def block_begins(self, at: int, end: int) -> bool:
        return _BLOCK.match(self.text[at:end]) is not None

    def scalar(self, at: int, end: int) -> tuple[str | None, int]:
        """Return a scalar and its end; in quotes it may span lines."""
        if self.text[at : at + 1] in ("'", '"'):
            match = _QUOTED.match(self.text, at, at + _FAR)
            if match is None:
                return None, end
            if match.end() > self.at:
                following = self.text.find("\n", match.end())
                self.at = len(self.text) if following < 0 else following + 1
            return plain(match.group()), match.end()
        match = _PLAIN.match(self.text, at, end)
        return (match.group(), match.end()) if match else (None, end)

    def flow(self, at: int, key: str | None = None, start: int = 0) -> Iterator[Pair]:
        """Yield the pairs in brackets, which may span lines."""
        depth, tokens = 0, list[_Token]()
        if self.unclosed > _MANY // 50:
            return
        for token in _tokens(_FLOW, self.text, at, at + _FAR):
            tokens.append(token)
            depth += (token.kind in _OPENING) - (token.kind in _CLOSING)
            if depth == 0:
                break
        if depth:  # a template, perhaps
            self.unclosed += 1
            return
        following = self.text.find("\n", tokens[-1].end)
        self.at = max(self.at, len(self.text) if following < 0 else following + 1)
        if key is not None and tokens[0].kind == "[":
            items, end = _items(tokens, 1)
            if items:
                yield Pair(plain(key), items, start, end, several=True)
        yield from _pairs(tokens, ":")

    def collected(self) -> Iterator[Pair]:
        """Yield the pair of a key and the list items below it."""
        if self.listed and self.items:
            key, _, start = self.listed
            yield Pair(plain(key), tuple(self.items), start, self.items_end, several=True)
        self.listed, self.items = None, []
