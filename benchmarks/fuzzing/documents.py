"""Markdown and reStructuredText: nothing may change but the blocks of Python."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from random import Random

import patterns

from devicefix.files.documents import text_of as text_of_file
from devicefix.files.markdown.blocks import Block, in_markdown, in_rst
from devicefix.model import Finding
from fuzzing import commands
from fuzzing.faults import Fault
from fuzzing.files import COMMANDS
from fuzzing.mutation import bytes_changed, lines_changed
from fuzzing.programs import LONGEST, Programs, found, text_of
from fuzzing.scratch import Scratch
from fuzzing.surface import checked, fixed_one_by_one, rewritten, settings

_FENCES = (
    "```python", "```py", "```python3 title='a'", "~~~python", "````python", "```{.python .x}",
    "```{code-block} python", "```{code} python\n:name: x", "```", "~~~", "```bash", "``` python",
    "```{.python", "```pycon", "```Python {a=1}",
)  # fmt: skip
_DIRECTIVES = (
    ".. code-block:: python", ".. code:: python3", ".. sourcecode:: py",
    ".. code-block:: python\n   :linenos:", ".. code-block:: bash", ".. note::", "::", ".. code-block::",
    ".. code-block:: python\n   :name: x\n   :emphasize: 1",
)  # fmt: skip
_PREFIXES = (
    "",
    "",
    "",
    "  ",
    "    ",
    "\t",
    "> ",
    ">",
    "- ",
    "1. ",
    "* > ",
    "   - ",
    ">> ",
    "\u00a0",
    "  >\t",
)
_TEXTS = (
    "# Use", "Call `x.cuda()` first.", "", "", "!!! note", '=== "Tab"', "- a", "> quoted", "1. one",
    "<!-- why -->", "---", "| a | b |", "    import torch", "<!-- devicefix: skip-file -->",
    ".. devicefix: skip-file", "é\u2028x", "```", "~~~~",
)  # fmt: skip
_EITHER = ("d.md", "d.rst")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


class Documents:
    """Texts, each of which is read as Markdown and as reStructuredText; see `Surface`."""

    suffix = ".md"

    def __init__(self, corpus: Path | None) -> None:
        self._programs = Programs(found(corpus, "*.py"))
        self._seeds = list(found(corpus, "*.md", "*.rst"))

    def seeds(self) -> Iterable[bytes]:
        """Return the small texts that can matter."""
        return self._seeds

    def fresh(self, random: Random) -> bytes:
        """Return a text with blocks of code."""
        parts = []
        for _ in range(random.randint(1, 4)):
            parts += [random.choice(_TEXTS), self._block(random)]
        text = "\n".join([*parts, random.choice(_TEXTS)])
        return text.replace("\n", random.choice(("\n", "\n", "\n", "\r\n", "\r"))).encode()

    def _block(self, random: Random) -> str:
        code = text_of(self._programs.fresh(random).encode()).strip("\n")
        if random.random() < 0.3:
            below = random.choice(("\n", "\n", "", "\n:x: y\n"))
            indentation = random.choice(("   ", "    ", "\t", " "))
            text = f"{random.choice(_DIRECTIVES)}\n{below}{textwrap.indent(code, indentation)}\n"
        else:
            fence = random.choice(_FENCES) if random.random() < 0.5 else "```python"
            end = fence[:3] if random.random() < 0.8 else random.choice(("````", ""))
            text = f"{fence}\n{code}\n{end}"
        first = random.choice(_PREFIXES) if random.random() < 0.4 else ""
        further = re.sub(r"[^\s>]", " ", first)
        lines = text.split("\n")
        return "\n".join(
            before + line for before, line in zip([first, *[further] * len(lines)], lines, strict=False)
        )

    def changed(self, random: Random, data: bytes) -> bytes:
        """Return a text with other lines, other code, or other bytes."""
        way = random.random()
        if way < 0.15:
            return bytes_changed(random, data)[:LONGEST]
        text = data.decode(errors="surrogateescape")
        if way < 0.4:
            made = self.fresh(random).decode() + text if way < 0.2 else self._with_block(random, text)
        else:
            own = (
                *_TEXTS,
                *_FENCES,
                *_DIRECTIVES,
                "x = x.cuda()",
                "import torch",
                "    x.cuda()",
                "%time f()",
            )
            made = lines_changed(random, text, own)
        return made.encode(errors="surrogateescape")[:LONGEST]

    def _with_block(self, random: Random, text: str) -> str:
        lines = text.split("\n")
        lines.insert(random.randint(0, len(lines)), self._block(random))
        return "\n".join(lines)

    def attempt(self, data: bytes, choice: int, scratch: Scratch) -> bool:
        """Check and rewrite a text in both languages, with one of four settings."""
        options = settings(choice)
        changes = False
        for name in _EITHER:
            _lie_inside(data, checked(data, name, options).findings)
            before = text_of_file(data).encode(errors="surrogatepass")
            for fixed in fixed_one_by_one(data, name, options):
                nothing_else_changes(before, fixed[None].encode(errors="surrogatepass"), name)
            output = rewritten(data, name, options).output
            if output is not None:
                changes = True
                nothing_else_changes(data, output, name)
            if choice // 4 % COMMANDS == 0:
                commands.round_trip(name, data, output, options, scratch)
                commands.report(choice // 32, "--no-cache", name)
        return changes


def _lines(data: bytes) -> list[str]:
    return _LINE.findall(data.decode(errors="surrogateescape"))


def _blocks(lines: list[str], name: str) -> list[Block]:
    find = in_rst if name.endswith(".rst") else in_markdown
    return list(find([line.rstrip("\r\n") for line in lines]))


def nothing_else_changes(data: bytes, output: bytes, name: str) -> None:
    """Expect the same text around the same number of blocks, each of which parses if it did."""
    (before, old), (after, new) = ((lines, _blocks(lines, name)) for lines in map(_lines, (data, output)))
    if len(old) != len(new):
        raise Fault("the text has other blocks")
    if _without(before, old) != _without(after, new):
        raise Fault("changed outside of the code")
    for one, other in zip(
        map(_code, [before] * len(old), old), map(_code, [after] * len(new), new), strict=True
    ):
        if patterns.parses(one) and not patterns.parses(other):
            raise Fault("the code of a block no longer parses")


def _lie_inside(data: bytes, findings: list[Finding]) -> None:
    """Expect that findings lie in lines of the text."""
    lines = [line.rstrip("\r\n") for line in _lines(data)]
    for finding in findings:
        for line, column in ((finding.line, finding.column), (finding.end_line, finding.end_column)):
            if not (1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1):
                raise Fault(f"a finding outside of the text: {finding.code}")


def _without(lines: list[str], blocks: list[Block]) -> list[str]:
    inside = {at for block in blocks for at in range(block.first, block.first + len(block.prefixes))}
    return [line for at, line in enumerate(lines) if at not in inside]


def _code(lines: list[str], block: Block) -> str:
    pairs = zip(block.prefixes, lines[block.first :], strict=False)
    return "".join(line[len(prefix) :] for prefix, line in pairs)
