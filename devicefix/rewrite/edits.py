"""Edits: how they join, how they nest, and how they are made."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from devicefix.files.text import without_old_names
from devicefix.model import Edit, Effect

# The rest of a line, perhaps an empty line, and the start of the next one.
_NEXT_LINE = re.compile(r"[ \t]*(#[^\r\n]*)?(\r\n|\r|\n){1,2}(?P<indentation>[ \t]*)")

Change = tuple[int, int, str]


class ConflictError(Exception):
    """Two edits overlap, and neither is inside the other."""


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits made: inner ones first, outer ones on the result.

    Raises:
        ConflictError: Two edits cross, or replace the same characters.
    """
    return replaced(text, resolved(text, joined(text, edits)))


def replaced(text: str, changes: Iterable[Change]) -> str:
    """Return a text with changes made that neither nest nor overlap."""
    parts, at = [], 0
    for start, end, new in changes:
        parts += [text[at:start], new]
        at = end
    return "".join([*parts, text[at:]])


def joined(text: str, edits: Iterable[Edit]) -> list[Edit]:
    """Return edits in order, changed where one depends on another.

    Neighbours share a guard. A block that loses every statement is removed, or gets a `pass`. A definition
    that would go inside what is removed goes behind it.
    """
    return _share_guards(text, sorted(_behind_removals(_without_empty_blocks(list(edits))), key=_place))


def resolved(text: str, edits: Sequence[Edit]) -> list[Change]:
    """Make the edits inside others, and return the outermost ones: start, end and new text of each.

    Args:
        text: The text that the edits are for.
        edits: Edits from `joined`.

    Raises:
        ConflictError: Two edits cross, or replace the same characters.
    """
    found: list[Change] = []
    index = 0
    while index < len(edits):
        edit = edits[index]
        if found and edit.start < found[-1][1]:
            raise ConflictError
        inner, index = _nested(text, edits, index + 1, edit.start, edit.end)
        found.append((edit.start, edit.end, _new_text(edit, inner)))
    return found


def _nested(text: str, edits: Sequence[Edit], index: int, start: int, end: int) -> tuple[str, int]:
    """Return a part of the text with the edits inside it made, and the index of the edit after them."""
    parts = []
    at = start
    while index < len(edits) and edits[index].start < end:
        edit = edits[index]
        if edit.start < at or edit.end > end or (edit.start, edit.end) == (start, end):
            raise ConflictError
        parts.append(text[at : edit.start])
        inner, index = _nested(text, edits, index + 1, edit.start, edit.end)
        parts.append(_new_text(edit, inner))
        at = edit.end
    parts.append(text[at:end])
    return "".join(parts), index


def _new_text(edit: Edit, old: str) -> str:
    return edit.new if isinstance(edit.new, str) else without_old_names(edit.new)(old)


def _place(edit: Edit) -> tuple[int, bool, int]:
    """Sort insertions before what they precede, and outer edits before inner ones."""
    return edit.start, edit.start < edit.end, -edit.end


def _share_guards(text: str, edits: list[Edit]) -> list[Edit]:
    """Put neighbouring statements that get the same guard under one."""
    shared: list[Edit] = []
    above: Edit | None = None
    for edit in edits:
        if edit.guard is None:
            shared.append(edit)
            continue
        if above is not None and above.guard == edit.guard and _follows(text, above, edit):
            assert edit.under is not None
            shared.append(replace(edit, new=edit.under, effect=Effect(deeper=edit.effect.deeper)))
        else:
            shared.append(edit)
        above = edit
    return shared


def _follows(text: str, above: Edit, edit: Edit) -> bool:
    """Return whether an edit's statement is the next one below another's, in the same block."""
    between = _NEXT_LINE.fullmatch(text, above.end, edit.start)
    line = text.rfind("\n", 0, above.start) + 1
    line = max(line, text.rfind("\r", line, above.start) + 1)
    return between is not None and between["indentation"] == text[line : above.start]


def _behind_removals(edits: list[Edit]) -> list[Edit]:
    """Move the statements that are inserted inside removed ones behind these."""
    removals = [edit for edit in edits if edit.new == "" and edit.start < edit.end]
    moved: list[Edit] = []
    for edit in edits:
        if edit.start == edit.end and isinstance(edit.new, str) and edit.new.endswith("\n"):
            around = (each.end for each in removals if each.start < edit.start < each.end)
            end = max(around, default=edit.start)
            moved.append(replace(edit, start=end, end=end))
        else:
            moved.append(edit)
    return moved


def _without_empty_blocks(edits: list[Edit]) -> list[Edit]:
    """Replace the removals of all statements of a block, which may empty the block around it."""
    while True:
        removals: dict[int, list[Edit]] = defaultdict(list)
        for edit in edits:
            if edit.removal is not None:
                removals[edit.removal.block].append(edit)
        changed: dict[int, Edit | None] = {}
        for first, *others in removals.values():
            assert first.removal is not None
            if first.removal.size == 1 + len(others):
                instead = changed[id(first)] = first.removal.instead
                changed.update((id(edit), None) for edit in others if edit.start < instead.end)
        if not changed:
            return edits
        edits = list(filter(None, (changed.get(id(edit), edit) for edit in edits)))
