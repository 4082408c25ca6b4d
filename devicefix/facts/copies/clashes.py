"""Changes in place of a value while a copy of it is kept, and used afterwards."""

from __future__ import annotations

import ast
from itertools import islice
from typing import NamedTuple

from devicefix.facts.copies.bodies import Bodies, Function
from devicefix.facts.copies.changes import Changes
from devicefix.facts.copies.expressions import contents, root
from devicefix.facts.copies.keeping import Holder, only_given, parts, rebinding, stores
from devicefix.facts.copies.places import Place, place_of
from devicefix.facts.copies.uses import FAR, OUT_OF_SIGHT, Uses
from devicefix.facts.flow import Flow, Point

_KEPT = 64  # uses of so many holders are remembered: mostly it is the last one or two that are asked for


class Clash(NamedTuple):
    """A change of what was copied, and a use of the copy after that.

    Attributes:
        change: where the source is changed in place, None where it happens out of sight.
        use: the line of a use behind the change, None for a use out of sight.
    """

    change: ast.AST | None
    use: int | None


class Clashes:
    """The clashes of a module.

    Args:
        bodies: the bodies of the module.
        changes: what its statements change in place.
    """

    def __init__(self, bodies: Bodies, changes: Changes) -> None:
        self._bodies = bodies
        self._facts = bodies.facts
        self._changes = changes
        self._uses: dict[tuple[Flow, Holder], Uses] = {}
        self._rebound: dict[tuple[Flow, str], set[Point]] = {}
        self._stored: dict[Point, list[tuple[Holder, set[str]]]] = {}
        self._read: dict[ast.ClassDef, set[str]] = {}
        self._bound: dict[ast.ClassDef, set[str]] = {}
        self._changed: dict[tuple[ast.ClassDef, Place], list[tuple[Function, ast.AST]]] = {}

    def find(self, flow: Flow, made: Point, place: Place, holder: Holder) -> Clash | None:
        """Return the clash of a place with the holder that keeps a copy of it, which is made at a point."""
        if not self._changes.within(flow, place) and self._elsewhere(flow, place, holder) is None:
            return None
        rebound = self._rebound_at(flow, place.path)
        todo, seen = [(made, holder)], {holder.path}
        while todo:
            start, keeper = todo.pop()
            if start in rebound:
                return None
            uses = self.uses(flow, keeper)
            # What is kept and not used any more does not matter.
            for point in islice(flow.reachable([start], uses.leading, uses.emptied, rebound), FAR):
                change = self._changes.at(point, place)
                if change is not None:
                    use = uses.behind(point)
                    if use is not None:
                        return Clash(change, use if use != OUT_OF_SIGHT else None)
                for other, paths in self._stored_at(point):
                    if other.path not in seen and keeper.path in paths:
                        seen.add(other.path)
                        todo.append((point, other))
        return self._elsewhere(flow, place, holder)

    def uses(self, flow: Flow, keeper: Holder) -> Uses:
        """Return the uses of what is kept."""
        key = flow, keeper
        if key not in self._uses:
            if len(self._uses) >= _KEPT:
                self._uses.clear()
            self._uses[key] = Uses(self._facts, flow, keeper)
        return self._uses[key]

    def _rebound_at(self, flow: Flow, path: str) -> set[Point]:
        """Return the points at which a place is bound anew."""
        key = flow, path
        if key not in self._rebound:
            self._rebound[key] = rebinding(flow, path)
        return self._rebound[key]

    def _stored_at(self, point: Point) -> list[tuple[Holder, set[str]]]:
        """Return what keeps something at a point, and the paths of what it keeps."""
        if point not in self._stored:
            self._stored[point] = [
                (
                    holder,
                    {
                        place.path
                        for expression in contents(value)
                        if (place := place_of(self._facts, expression))
                    },
                )
                for holder, value in stores(self._facts, point)
            ]
        return self._stored[point]

    def _elsewhere(self, flow: Flow, place: Place, holder: Holder) -> Clash | None:
        """Return a change in another method of the class, or of a model's parameters by the caller."""
        if isinstance(flow.owner, ast.Module) or not holder.path.startswith("self."):
            return None
        if flow.owner.name == "__init__":
            return None
        if place.parameters and only_given(self._facts, flow, root(place.path)):
            return Clash(None, None)
        owner = self._facts.tree.parents.get(flow.owner)
        if not isinstance(owner, ast.ClassDef) or not place.path.startswith("self."):
            return None
        if owner not in self._read:
            flows = map(self._bodies.flow, _methods(owner))
            self._read[owner] = {path for inner_flow in flows for path in inner_flow.readers}
        if holder.path not in self._read[owner]:
            return None
        if owner not in self._bound:
            flows = map(self._bodies.flow, _but_the_first(owner))
            self._bound[owner] = {path for inner_flow in flows for path in inner_flow.binders}
        if not self._bound[owner].isdisjoint(parts(place.path)):
            return None
        changes = self._changed_in(owner, place)
        change = next((node for method, node in changes if method is not flow.owner), None)
        return None if change is None else Clash(change, None)

    def _changed_in(self, owner: ast.ClassDef, place: Place) -> list[tuple[Function, ast.AST]]:
        """Return the methods of a class that change a place, each with its first change."""
        key = owner, place
        if key not in self._changed:
            found = self._changed[key] = []
            for method in _but_the_first(owner):
                flow = self._bodies.flow(method)
                if self._changes.within(flow, place):
                    changes = (self._changes.at(point, place) for point in flow.points)
                    found += ((method, change) for change in islice(filter(None, changes), 1))
        return self._changed[key]


def _methods(owner: ast.ClassDef) -> list[Function]:
    return [statement for statement in owner.body if isinstance(statement, Function)]


def _but_the_first(owner: ast.ClassDef) -> list[Function]:
    """Return the methods of a class other than `__init__`."""
    return [method for method in _methods(owner) if method.name != "__init__"]
