"""Edits: how they join, how they nest, and how they are made."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

from devicefix.files.text import Change, without_old_names
from devicefix.model import Edit, Effect, New, Operation, Span
from devicefix.rewrite.depth import may_be_too_deep
from devicefix.rewrite.operations import AddKeyword, Guard, KeepFirst, Placed, StatementOperation

# The rest of a line, perhaps an empty line, and the start of the next one.
_NEXT_LINE = re.compile(r"[ \t]*(#[^\r\n]*)?(\r\n|\r|\n){1,2}(?P<indentation>[ \t]*)")


class ConflictError(Exception):
    """Two edits overlap, and neither is inside the other."""


class Spans:
    """Parts of a text, without those that are inside others."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            if not self.ends or self.ends[-1] <= start:
                self.starts.append(start)
                self.ends.append(end)

    def overlap(self, start: int, end: int) -> bool:
        """Return whether one of the parts has a character in a span, or is empty and inside it."""
        return bisect_right(self.ends, start) < bisect_left(self.starts, end)

    def hold(self, start: int, end: int) -> bool:
        """Return whether one of the parts is around a span."""
        around = self.around(start)
        return around is not None and end <= around[1]

    def around(self, offset: int) -> Span | None:
        """Return the part that the character at an offset is in."""
        index = bisect_right(self.ends, offset)
        found = index < len(self.starts) and self.starts[index] <= offset
        return (self.starts[index], self.ends[index]) if found else None


class Shift:
    """The offsets of the old text in the new one."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self._starts = [start for start, _, _ in changes]
        self._ends = [end for _, end, _ in changes]
        self._sums = [0, *accumulate(len(text) - (end - start) for start, end, text in changes)]

    def start(self, offset: int) -> int:
        """Return the new offset of code that starts at an old one: behind what is inserted there."""
        index = bisect_right(self._ends, offset)
        return min([offset, *self._starts[index : index + 1]]) + self._sums[index]

    def end(self, offset: int) -> int:
        """Return the new offset of the end of code that ended at an old one: before what is inserted."""
        index = bisect_left(self._starts, offset)
        return max([offset, *self._ends[max(index - 1, 0) : index]]) + self._sums[index]

    def span(self, start: int, end: int) -> Span:
        """Return where a part of the old text is in the new one."""
        return self.start(start), max(self.start(start), self.end(end))

    def made(self, spans: Iterable[Span]) -> tuple[Span, ...]:
        """Return the parts of the new text that edits of these parts of the old one have made."""
        found: set[int] = set()
        for start, end in spans:
            first = bisect_right(self._ends, start) if start < end else bisect_left(self._ends, start)
            last = bisect_left(self._starts, end) if start < end else bisect_right(self._starts, end)
            found.update(range(first, last))
        starts, ends, sums = self._starts, self._ends, self._sums
        return tuple((starts[at] + sums[at], ends[at] + sums[at + 1]) for at in sorted(found))


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
        code, operations, index = _made(text, edits, index)
        found.append((edit.start, edit.end, carried_out(code, operations)))
    return found


def _made(text: str, edits: Sequence[Edit], index: int) -> tuple[str, list[Placed], int]:
    """Make an edit and those inside it.

    Returns:
        The code, the operations that are still to be carried out on it, and the index of the next edit.
        An operation on an expression waits for the one around it, since one parse serves both.
    """
    edit = edits[index]
    code, waiting, at = "", [], edit.start
    index += 1
    while index < len(edits) and edits[index].start < edit.end:
        inner = edits[index]
        if inner.start < at or inner.end > edit.end or (inner.start, inner.end) == (edit.start, edit.end):
            raise ConflictError
        part, operations, index = _made(text, edits, index)
        code += text[at : inner.start]
        if isinstance(edit.new, Operation):
            waiting += [each.moved(len(code)) for each in operations]
            operations = []
        code += carried_out(part, operations)
        at = inner.end
    code += text[at : edit.end]
    if isinstance(edit.new, Operation):
        waiting.append(Placed(edit.new, 0, len(code)))
        if not isinstance(edit.new, (StatementOperation, KeepFirst)):
            return code, waiting, index
        return carried_out(code, waiting), [], index
    return new_code(edit.new, code), [], index


def new_code(new: New, old: str) -> str:
    """Return the code that takes the place of old code."""
    if isinstance(new, str):
        return new
    if isinstance(new, Operation):
        return carried_out(old, [Placed(new, 0, len(old))])
    return without_old_names(new)(old)


def carried_out(text: str, operations: Sequence[Placed]) -> str:
    """Return the code of a node after operations on it, and on expressions inside; the last is on itself."""
    if not operations:
        return text
    from devicefix.rewrite.transformer import transformed  # LibCST takes long to import

    return without_old_names(lambda code: transformed(code, operations))(text)


def is_too_deep(text: str, edit: Edit) -> bool:
    """Return whether an edit would change code that is nested too deeply for LibCST."""
    old = text[edit.start : edit.end]
    try:
        if may_be_too_deep(old):
            new_code(edit.new, old)
    except RecursionError:
        return True
    return False


def with_keyword(name: str, value: str) -> Callable[[str], str]:
    """Return a function that gives the code of a call one more keyword argument, before `**kwargs`."""
    return partial(new_code, AddKeyword(name, value))


def _place(edit: Edit) -> tuple[int, bool, int]:
    """Sort insertions before what they precede, and outer edits before inner ones."""
    return edit.start, edit.start < edit.end, -edit.end


def _share_guards(text: str, edits: list[Edit]) -> list[Edit]:
    """Put neighbouring statements that get the same guard under one."""
    shared: list[Edit] = []
    above: Edit | None = None
    for edit in edits:
        if isinstance(edit.new, Guard):
            joins = above is not None and edit.new == above.new and _follows(text, above, edit)
            above = edit
            if joins:
                new = replace(edit.new, joins=True)
                shared.append(replace(edit, new=new, effect=Effect(deeper=True)))
                continue
        elif above is not None and above.end <= edit.start == edit.end:
            above = None  # an `else:` may be in between
        shared.append(edit)
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
    """Replace what all statements of a block, or all arms of a choice, get: it may change what is around."""
    while True:
        starts = sorted(edit.start for edit in edits)
        blocks: dict[int, list[Edit]] = defaultdict(list)
        for edit in edits:
            if edit.removal is not None:
                blocks[edit.removal.block].append(edit)
        changed: dict[int, Edit | None] = {}
        for block in blocks.values():
            guards = [edit for edit in block if edit.new]
            first, *others = guards or block
            assert first.removal is not None
            instead, whole = first.removal.instead, first.removal.size == len(block)
            kept = bisect_left(starts, instead.start) == bisect_left(starts, instead.end)
            if first.end <= instead.end:  # an arm of it
                kept = all((edit.start, edit.end) != (instead.start, instead.end) for edit in edits)
            if whole and (not guards or (kept and all(each.new == first.new for each in others))):
                changed[id(first)] = instead
                changed.update((id(edit), None) for edit in others if guards or edit.start < instead.end)
        if not changed:
            return edits
        edits = list(filter(None, (changed.get(id(edit), edit) for edit in edits)))
