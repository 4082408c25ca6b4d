"""Define what the campaign needs of a surface: new inputs, changed inputs, and a trial of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Protocol

import properties

from devicefix.config.settings import Settings
from devicefix.engine.file import File
from devicefix.facts.project import Project
from devicefix.files.documents import text_of
from devicefix.files.positions import Lines
from devicefix.model import Replacement, Result
from fuzzing.faults import Fault, quick
from fuzzing.scratch import Scratch

FIXES = 5  # findings of a file whose fixes are tried alone


class Surface(Protocol):
    """A kind of input.

    Attributes:
        suffix: the suffix of the files that keep inputs.
    """

    suffix: str

    def seeds(self) -> Iterable[bytes]:
        """Return the inputs that the corpus has."""

    def fresh(self, random: Random) -> bytes:
        """Return a new input, made of our own patterns and of what the corpus has."""

    def changed(self, random: Random, data: bytes) -> bytes:
        """Return an input that is made of another one."""

    def attempt(self, data: bytes, choice: int, scratch: Scratch) -> bool:
        """Try an input.

        Args:
            data: the input.
            choice: chooses between settings, commands and the like; the same number always chooses the same.
            scratch: where files may be written; it is empty, and the current folder.

        Returns:
            Whether anything was rewritten or reported.

        Raises:
            Fault: something happened that must not.
            Exception: devicefix failed, which must not happen for any input.
        """


def settings(choice: int) -> Settings:
    """Return the target and the safety of the fixes that a number chooses."""
    return properties.SETTINGS[choice % len(properties.SETTINGS)]


def checked(data: bytes, path: str, options: Settings) -> Result:
    """Return what the engine finds in a file."""
    result = _look(data, path, replace(options, fix=False))
    if result.output is not None or result.fixed:
        raise Fault("a check rewrites")
    return result


def rewritten(data: bytes, path: str, options: Settings) -> Result:
    """Return what the engine makes of a file, of which nothing more can be made."""
    result = _look(data, path, replace(options, fix=True))
    if result.output is not None:
        if result.output == data:
            raise Fault("a rewrite that changes nothing")
        again = _look(result.output, path, replace(options, fix=True))
        if again.output is not None:
            codes = sorted({finding.code for finding in again.fixed})
            raise Fault(f"a second run changes something: {' '.join(codes)}")
    return result


def fixed_one_by_one(data: bytes, path: str, options: Settings) -> Iterator[dict[int | None, str]]:
    """Yield what each of the first fixes alone makes of a file, as an editor would: its text, or its cells'.

    Raises:
        Fault: a part of the fix is outside of the file, or overlaps with another one.
    """
    result = _look(data, path, replace(options, fix=False, replacements=True))
    for finding in result.findings[:FIXES]:
        parts: dict[int | None, list[Replacement]] = {}
        for part in finding.fix.replacements if finding.fix else ():
            parts.setdefault(part.cell, []).append(part)
        if parts:
            yield {cell: _replaced(text_of(data, cell), some) for cell, some in parts.items()}


def _replaced(text: str, parts: Iterable[Replacement]) -> str:
    """Return a text with parts of it replaced."""
    lines = Lines(text)
    spans = [
        (lines.offset(part.line, part.column), lines.offset(part.end_line, part.end_column), part.text)
        for part in parts
    ]
    pieces, at = [], 0
    for start, end, new in sorted(spans, key=lambda span: span[:2]):
        if not at <= start <= end <= len(text):
            raise Fault("the parts of a fix overlap, or are outside of the file")
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]])


def _look(data: bytes, path: str, options: Settings) -> Result:
    with quick(f"{'rewrite' if options.fix else 'check'} of {path}"):
        file = File(data, path, options)
        return file.check(Project(file.shared))
