"""What is changed in place while a copy of it is kept, and used after that."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from devicefix.facts.copies.bodies import Bodies, Function
from devicefix.facts.copies.changes import Changes
from devicefix.facts.copies.expressions import contents, root
from devicefix.facts.copies.keeping import Holder, empties, only_given, outlives_call, rebinds, stores
from devicefix.facts.copies.places import Place, place_of
from devicefix.facts.flow import Flow, Point

OUT_OF_SIGHT = 0


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

    def find(self, flow: Flow, made: Point, place: Place, holder: Holder) -> Clash | None:
        """The clash of a place with the holder that keeps a copy of it, which is made at a point."""
        todo, seen = [(made, holder)], {holder.path}
        while todo:
            start, keeper = todo.pop()
            if rebinds(start, place.path):
                return None
            for point in _while_kept(flow, start, place, keeper):
                change = self._changes.at(point, place)
                if change is not None:
                    use = self.use_behind(flow, point, keeper)
                    if use is not None:
                        return Clash(change, use if use != OUT_OF_SIGHT else None)
                for other, value in stores(self._facts, point):
                    if other.path not in seen and self._holds(value, keeper.path):
                        seen.add(other.path)
                        todo.append((point, other))
        return self._elsewhere(flow, place, holder)

    def use_behind(self, flow: Flow, change: Point, keeper: Holder) -> int | None:
        """The line of a use of what is kept, behind a change of its source; or `OUT_OF_SIGHT`."""
        if empties(change, keeper):
            return None
        outlives = outlives_call(self._facts, flow, keeper)
        for point in flow.reachable([change], lambda each: empties(each, keeper)):
            if point is flow.exit:
                if outlives:
                    return OUT_OF_SIGHT
            elif keeper.path in point.reads:
                return getattr(point.node, "lineno", OUT_OF_SIGHT)
        return None

    def _holds(self, value: ast.expr, path: str) -> bool:
        """Whether what is at a path is kept where a value is."""
        places = (place_of(self._facts, each) for each in contents(value))
        return any(place is not None and place.path == path for place in places)

    def _elsewhere(self, flow: Flow, place: Place, holder: Holder) -> Clash | None:
        """A change in another method of the class, or of a model's parameters by whoever calls."""
        if isinstance(flow.owner, ast.Module) or not holder.path.startswith("self."):
            return None
        if flow.owner.name == "__init__":
            return None
        if place.parameters and only_given(self._facts, flow, root(place.path)):
            return Clash(None, None)
        owner = self._facts.tree.parents.get(flow.owner)
        if not isinstance(owner, ast.ClassDef) or not place.path.startswith("self."):
            return None
        methods = [each for each in owner.body if isinstance(each, Function)]
        if not any(
            holder.path in point.reads for method in methods for point in self._bodies.flow(method).points
        ):
            return None
        change = self._change_in_another(methods, flow, place)
        return None if change is None else Clash(change, None)

    def _change_in_another(self, methods: list[Function], flow: Flow, place: Place) -> ast.AST | None:
        """The first change by a method other than the flow's, None where one of them binds the place anew."""
        change: ast.AST | None = None
        for method in methods:
            if method.name == "__init__":
                continue
            points = self._bodies.flow(method).points
            if any(rebinds(point, place.path) for point in points):
                return None
            if method is not flow.owner and change is None:
                change = next(filter(None, (self._changes.at(point, place) for point in points)), None)
        return change


def _while_kept(flow: Flow, start: Point, place: Place, keeper: Holder) -> Iterator[Point]:
    """The points after one, up to where the place is bound anew or nothing is kept any more."""
    return flow.reachable([start], lambda each: rebinds(each, place.path) or empties(each, keeper))
