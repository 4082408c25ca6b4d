"""Which lines of a module hold a word that can be part of a tie to CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Statements that hold none of these words can't be part of a tie, nor say anything about one: only the
# names that they bind are looked at.
_WORDS = (
    "cuda", "device", "gpu", "load", ".to", "nccl", "pin_memory", "nvtx", "apex", "rank", "tensor", "backend",
    "variable(", "volatile", ".data", "add_argument", "accelerator", "stream", "event", ".record", "elapsed",
    "synchronize", "batchnorm",
)  # fmt: skip
_FROM_CUDA = re.compile(
    r"^[ \t]*(?:from[ \t]+torch\.cuda[\w.]*[ \t]+import[ \t]+([^\n#]+)"
    r"|import[ \t]+torch\.cuda[\w.]*[ \t]+as[ \t]+(\w+)"
    r"|from[ \t]+torch[ \t]+import[^\n#]*\bcuda[ \t]+as[ \t]+(\w+))",
    re.M,
)


def _imported_from_cuda(text: str) -> set[str]:
    """The names, in small letters, by which a module calls torch.cuda or parts of it."""
    found = {
        name for match in _FROM_CUDA.findall(text) for part in match for name in re.findall(r"\w+", part)
    }
    return found - {"as", "import"}


def lines_that_matter(text: str) -> list[int]:
    """The lines, from 1, that hold a word that matters."""
    text = text.lower()
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _lines(text, _places(text))


def lines_with(words: re.Pattern[str], text: str) -> list[int]:
    """The lines, from 1, that hold some words."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _lines(text, (match.start() for match in words.finditer(text)))


def _places(text: str) -> set[int]:
    """Where words that matter stand, at least in each line that holds one."""
    places: set[int] = set()  # at most one for each word and line
    for word in (*_WORDS, *_imported_from_cuda(text)):
        at = text.find(word)
        while at >= 0:
            places.add(at)
            end = text.find("\n", at)
            at = text.find(word, end) if end >= 0 else -1
    return places


def _lines(text: str, places: Iterable[int]) -> list[int]:
    lines: list[int] = []
    line, before = 1, 0
    for at in sorted(places):
        line += text.count("\n", before, at)
        before = at
        lines.append(line)
    return lines
