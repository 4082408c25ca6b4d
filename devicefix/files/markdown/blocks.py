"""Find blocks of Python in Markdown and reStructuredText.

The texts are read line by line. Parsers of the two languages miss blocks: a fence that MkDocs indents below
`!!! note` or `=== "Tab"` is not a fence to CommonMark, and docutils does not know the directives of Sphinx.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_PYTHON = r"(?:python3?|py3?)"
# ```python, ```py title="train.py", ```{.python .numberLines}, and of MyST ```{code-block} python
_INFO = re.compile(rf"\s*(?:\{{(?:code|code-block|sourcecode)\}}\s*|\{{\s*\.)?{_PYTHON}(?=[\s,}}:]|$)", re.I)
_FENCE = re.compile(
    r"(?P<outer>[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*)(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)"
)
_DIRECTIVE = re.compile(
    rf"(?P<outer>[ \t]*)\.\. (?:code|code-block|sourcecode)::[ \t]+{_PYTHON}[ \t]*$", re.I
)
_OPTION = re.compile(r"[ \t]*:[\w-]+:")


class Block(NamedTuple):
    """Lines of code.

    Attributes:
        first: the number of the first line, from 0.
        prefixes: the text before the code in each line; a blank line may have another one.
        usual: the text before the code in a line that is not blank.
    """

    first: int
    prefixes: list[str]
    usual: str


def in_markdown(lines: list[str]) -> Iterator[Block]:
    """Yield the fenced blocks of Python.

    Args:
        lines: the lines of the text, without their ends.
    """
    at = 0
    while at < len(lines):
        opening = _FENCE.fullmatch(lines[at])
        at += 1
        if opening is None:
            continue
        # What is before the lines of the block: `- ` becomes blanks.
        first, inner = at, re.sub(r"[^\s>]", " ", opening["outer"])
        closing = re.compile(rf"[ \t]*{re.escape(opening['fence'][0])}{{{len(opening['fence'])},}}[ \t]*")
        prefixes: list[str] = []
        while at < len(lines) and (prefix := _prefix(lines[at], inner)) is not None:
            if closing.fullmatch(lines[at], len(prefix)):
                if _INFO.match(opening["info"]):
                    yield _without_options(Block(first, prefixes, inner), lines, opening["info"])
                at += 1
                break
            prefixes.append(prefix)
            at += 1


def in_rst(lines: list[str]) -> Iterator[Block]:
    """Yield the blocks of Python that a directive starts; see `in_markdown`."""
    at = 0
    while at < len(lines):
        opening = _DIRECTIVE.fullmatch(lines[at])
        at += 1
        if opening is None:
            continue
        while at < len(lines) and _OPTION.match(lines[at]):
            at += 1
        while at < len(lines) and not lines[at].strip():
            at += 1
        first, outer = at, opening["outer"]
        indentation = _indentation(lines[at]) if at < len(lines) else ""
        if not (indentation.startswith(outer) and len(indentation) > len(outer)):
            continue
        prefixes: list[str] = []
        while at < len(lines) and (prefix := _prefix(lines[at], indentation)) is not None:
            prefixes.append(prefix)
            at += 1
        while not lines[first + len(prefixes) - 1].strip():
            prefixes.pop()
        yield Block(first, prefixes, indentation)


def _prefix(line: str, inner: str) -> str | None:
    """Return the part of a line that is not code; None if the block has ended."""
    if line.startswith(inner):
        return inner
    if not line.strip() or (">" in inner and line.rstrip() == inner.rstrip()):
        return line
    return None


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _without_options(block: Block, lines: list[str], info: str) -> Block:
    """Return a MyST block without the options of its directive."""
    skipped = 0
    if info.lstrip().startswith("{code") or info.lstrip().startswith("{source"):
        for prefix, line in zip(block.prefixes, lines[block.first :], strict=False):
            if not _OPTION.match(line, len(prefix)):
                break
            skipped += 1
    return Block(block.first + skipped, block.prefixes[skipped:], block.usual)
