"""A fix as plain text, to show, to export, or to apply alone in an editor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from devicefix.model import Edit, Finding, Need, Replacement

if TYPE_CHECKING:
    from devicefix.facts import Facts

_place = attrgetter("line", "column", "end_line", "end_column")
_SHORT = 100  # characters of code that fit into a title


def suggested(
    finding: Finding, facts: Facts, insertions: Callable[[frozenset[Need]], list[Edit]], length: int | None
) -> Finding:
    """Return a finding whose fix is spelled out, with the definitions and imports that it needs.

    Args:
        finding: The finding; it may have no fix.
        facts: The facts of the module.
        insertions: A function that returns the edits that insert what a fix needs.
        length: How long lines may be; None if the text shows it.
    """
    fix = finding.fix
    if fix is None or not fix.edits:
        return finding
    from devicefix.rewrite.edits import joined, resolved
    from devicefix.rewrite.wrapping import wrapped

    source = facts.source
    edits = joined(source.text, [*fix.edits, *insertions(fix.needs)])
    changes = wrapped(source, facts.tree, resolved(source.text, edits), length)
    places = ((source.position(start), source.position(end), new) for start, end, new in changes)
    replacements = (Replacement(*start, *end, new) for start, end, new in places)
    return replace(finding, fix=replace(fix, replacements=tuple(replacements)))


def title(finding: Finding) -> str:
    """Return what the fix of a finding does, in a few words; a fix that is spelled out says more."""
    fixed = finding.fix.replacements if finding.fix else ()
    texts = [other for other in fixed if other.cell == finding.cell and not other.text.isspace()]
    own = [each for each in texts if each.line <= finding.end_line and finding.line <= each.end_line]
    if len(own) == 1:
        before = "".join(f"{each.text}\n" for each in texts if each.line < own[0].line)
        headers = [line.strip() for line in before.splitlines() if line.endswith(":")]
        if headers and own[0].text[:1].isspace():  # the line is only indented
            return f"Put it under `{headers[-1]}`"
        first, *others = own[0].text.strip().splitlines() or [""]
        if not first:
            return "Remove it"
        if first.endswith(":") and others:
            return f"Put it under `{first}`"
        if not others and len(first) <= _SHORT:
            whole = _place(own[0]) == _place(finding)
            return f"Replace with `{first}`" if whole else f"Use `{first}`"
    return "Rewrite it for any device"
