"""The search for copies that are used after their source has changed."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from devicefix.facts.copies.bodies import Bodies
from devicefix.facts.copies.changes import Changes, changes_numbers
from devicefix.facts.copies.clashes import Clashes
from devicefix.facts.copies.copying import Copies, Copy
from devicefix.facts.copies.expressions import contents
from devicefix.facts.copies.keeping import Holder, only_given, stores
from devicefix.facts.copies.places import Place
from devicefix.facts.flow import Body, Flow, Point
from devicefix.facts.module import Facts

_COPYING = (".cpu", ".cuda", ".to", "as_tensor")
_CALLED = re.compile(r"\s*\(")


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A copy that is kept.

    Attributes:
        call: the call that copies on a GPU and not on a CPU.
        outer: the expression around it that is a view of it, such as `x.cpu().numpy()`.
        source: what is copied.
        holder: what keeps the copy.
        change: where the source is changed in place, None where it happens out of sight.
        use: the line of a use behind the change, None for a use out of sight.
        reverse: whether it is the copy that is changed, and the source that is used after that.
    """

    call: ast.Call
    outer: ast.expr
    source: Place
    holder: str
    change: ast.AST | None
    use: int | None
    reverse: bool = False


@lru_cache(maxsize=1)
def held_copies(facts: Facts) -> tuple[Held, ...]:
    """Return the copies of a module that are used after their source has changed."""
    text = facts.source.text
    if ("cuda" not in text and "device" not in text) or next(_copying(text), None) is None:
        return ()
    return tuple(_Search(facts).held())


def _copying(text: str) -> Iterator[int]:
    """Return the places of calls that may copy."""
    for word in _COPYING:  # one by one: several times as fast as a regular expression for all
        at = text.find(word)
        while at >= 0:
            if _CALLED.match(text, at + len(word)):
                yield at
            at = text.find(word, at + 1)


class _Search:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._bodies = Bodies(facts)
        self._copies = Copies(self._bodies)
        self._changes = Changes(self._bodies)
        self._clashes = Clashes(self._bodies, self._changes)

    def held(self) -> Iterator[Held]:
        """Return the copies that are kept, body by body."""
        for owner in self._bodies.owners:
            if self._may_copy(owner):
                flow = self._bodies.flow(owner)
                for point in filter(self._copies_at, flow.points):
                    yield from self._kept(flow, point)
                    yield from self._changed_directly(flow, point)

    def _may_copy(self, owner: Body) -> bool:
        if isinstance(owner, ast.Module):
            return bool(self._lines)
        return self._between(owner.lineno, owner.end_lineno or owner.lineno)

    def _copies_at(self, point: Point) -> bool:
        """Return whether the lines of a point hold what may be a copy."""
        return any(
            self._between(getattr(part, "lineno", 0), getattr(part, "end_lineno", 0)) for part in point.parts
        )

    def _between(self, first: int, last: int) -> bool:
        at = bisect_left(self._lines, first)
        return at < len(self._lines) and self._lines[at] <= last

    @cached_property
    def _lines(self) -> list[int]:
        """Return the lines that hold what may be a copy, in order."""
        source = self._facts.source
        found = list(_copying(source.text))
        returning = self._copies.returning
        if returning:
            words = re.finditer(r"\w+", source.text)
            found += (match.start() for match in words if match.group() in returning)
        return [source.position(at)[0] for at in sorted(found)]

    def _kept(self, flow: Flow, point: Point) -> Iterator[Held]:
        """Return the copies that are made and kept at a point."""
        for holder, value in stores(self._facts, point):
            for expression in contents(value):
                copy = self._copies.of(expression)
                if copy is None or self._facts.is_guarded(copy.call):
                    continue
                if copy.source.path == holder.path:
                    continue  # `x = x.cpu()`: nothing else is kept
                held = self._source_changed(flow, point, copy, holder)
                held = held or self._copy_changed(flow, point, copy, holder)
                if held is not None:
                    yield held

    def _source_changed(self, flow: Flow, point: Point, copy: Copy, holder: Holder) -> Held | None:
        """Return a copy that is used after its source is changed in place."""
        for place in copy.places:
            clash = self._clashes.find(flow, point, place, holder)
            if clash is not None:
                return Held(copy.call, copy.outer, place, holder.path, clash.change, clash.use)
        return None

    def _copy_changed(self, flow: Flow, point: Point, copy: Copy, holder: Holder) -> Held | None:
        """Return a copy that is changed in place, and whose source is used after that."""
        source = copy.source
        if holder.adds or source.parameters:
            return None
        clash = self._clashes.find(flow, point, Place(holder.path), Holder(source.path, False))
        if clash is None or clash.change is None or clash.use is None:
            return None
        return Held(copy.call, copy.outer, source, holder.path, clash.change, clash.use, True)

    def _changed_directly(self, flow: Flow, point: Point) -> Iterator[Held]:
        """Return copies such as `x.cuda().mul_(2)`, which changes `x` itself on a CPU."""
        for node in point.nodes:
            if not (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and changes_numbers(node.func.attr)
            ):
                continue
            copy = self._copies.of(node.func.value)
            if copy is None or copy.source.parameters or self._facts.is_guarded(copy.call):
                continue
            if self._changes.at(point, copy.source, node) is not None:
                continue  # `x.copy_(x.cpu().normal_())`: it changes in any case
            path = copy.source.path
            use = self._clashes.uses(flow, Holder(path, False)).behind(point)
            if use or only_given(self._facts, flow, path):
                yield Held(copy.call, copy.outer, copy.source, path, node, use, True)
