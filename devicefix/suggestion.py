"""A fix as plain text, to show, to export, or to apply by itself in an editor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from devicefix.finding import Finding, Replacement

if TYPE_CHECKING:
    from devicefix.device import Devices
    from devicefix.source import Source


def suggested(finding: Finding, source: Source, devices: Devices) -> Finding:
    """A finding whose fix is spelled out, with the definitions and imports that it needs.

    Args:
        finding: what was found.
        source: the module's text.
        devices: what the fixes of the module rely on.
    """
    fix = finding.fix
    if fix is None or not fix.edits:
        return finding
    from devicefix.rewriting import resolved

    edits = [*fix.edits, *devices.insertions(fix.needs)]
    replacements = (
        Replacement(*source.position(start), *source.position(end), new)
        for start, end, new in resolved(source.text, edits)
    )
    return replace(finding, fix=replace(fix, replacements=tuple(replacements)))
