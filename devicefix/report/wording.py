"""Text that several outputs share: places, numbers, and characters that are safe to print."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devicefix.model import Finding


def printable(text: str) -> str:
    """Return the text with every character escaped that could break its line or control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def place(finding: Finding) -> str:
    """Return the position of a finding in its file: `12:3`, or `cell 4:12:3` in a notebook."""
    cell = f"cell {finding.cell}:" if finding.cell else ""
    return f"{cell}{finding.line}:{finding.column}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural: `1 file`, `2 files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
