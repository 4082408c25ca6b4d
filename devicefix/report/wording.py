"""Text that several outputs share: places and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devicefix.model import Finding


def place(finding: Finding) -> str:
    """Return the position of a finding in its file: `12:3`, or `cell 4:12:3` in a notebook."""
    cell = f"cell {finding.cell}:" if finding.cell else ""
    return f"{cell}{finding.line}:{finding.column}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural: `1 file`, `2 files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
