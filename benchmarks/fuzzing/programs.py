"""Programs as seeds, and programs made of other ones: statements and expressions are put into each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

import patterns

from devicefix.facts.prefilter import may_matter

LONGEST = 20_000  # bytes of an input


def found(folder: Path | None, *globs: str) -> Iterator[bytes]:
    """Yield the small files in a folder, if there is one, that can matter."""
    for glob in globs if folder else ():
        for path in sorted(folder.rglob(glob)) if folder else ():
            if path.is_file() and path.stat().st_size < LONGEST:
                data = path.read_bytes()
                if may_matter(data):
                    yield data


def text_of(data: bytes) -> str:
    """Return the text of a program, as far as it can be decoded, with line feeds only."""
    return data.decode(errors="ignore").replace("\r\n", "\n")


class Programs:
    """Makes programs of other ones.

    Args:
        contents: programs whose parts are used as well as those of the rules' examples.
    """

    def __init__(self, contents: Iterable[bytes] = ()) -> None:
        own = patterns.fragments()
        real = patterns.fragments_of([data.decode(errors="ignore") for data in contents])
        pairs = zip(real, own, strict=True)
        self.pieces = patterns.Fragments(*(tuple(dict.fromkeys((*a, *b))) for a, b in pairs))
        self._ways = (self._fresh, self._formed, self._with_statement, self._with_expression, self._shorter)

    def fresh(self, random: Random) -> str:
        """Return a new program."""
        return patterns.program(random, self.pieces, random.randint(1, 4)).decode()

    def changed(self, random: Random, text: str) -> str:
        """Return another program, which parses if this one does."""
        for _ in range(5):
            new = random.choice(self._ways)(random, text)
            if new != text and patterns.parses(new):
                text = new
                if random.random() < 0.4:
                    break
        return text

    def _fresh(self, random: Random, text: str) -> str:
        """Return a new program, sometimes with the old one after it."""
        new = self.fresh(random)
        return new + text if random.random() < 0.2 else new

    def _formed(self, random: Random, text: str) -> str:
        """Return the same program in another form."""
        return patterns.formed(random, text)

    def _with_statement(self, random: Random, text: str) -> str:
        """Insert a statement between two lines, indented as the next one."""
        lines = text.split("\n")
        at = random.randrange(len(lines))
        indentation = re.match(r"\s*", lines[at])
        new = random.choice(self.pieces.statements or ("x.cuda()",))
        lines[at:at] = [(indentation.group() if indentation else "") + line for line in new.split("\n")]
        return "\n".join(lines)

    def _with_expression(self, random: Random, text: str) -> str:
        """Replace a name or the arguments of a call by an expression."""
        places = list(re.finditer(r"(?<![\w.])[a-z]\w*(?![\w=])|(?<=\()[^()]*(?=\))", text))
        if not places:
            return text
        place = random.choice(places)
        return text[: place.start()] + random.choice(self.pieces.expressions) + text[place.end() :]

    def _shorter(self, random: Random, text: str) -> str:
        """Remove some lines of the program."""
        lines = text.split("\n")
        at = random.randrange(len(lines))
        del lines[at : at + random.choice((1, 2, 5, 20))]
        return "\n".join(lines)
