"""The names by which a tensor is known: what shares its memory before a copy, and after it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import NamedTuple

from devicefix.facts.copies.bodies import Bodies
from devicefix.facts.copies.copying import move_inside
from devicefix.facts.copies.expressions import root
from devicefix.facts.copies.inside import kept_in
from devicefix.facts.copies.keeping import Holder, elements, emptying, rebinding, stores
from devicefix.facts.copies.places import Place, lasting, place_of
from devicefix.facts.copies.uses import FAR
from devicefix.facts.flow.order import Flow, Point

_MANY = 16  # names of one tensor


class Member(NamedTuple):
    """A name of a tensor.

    Attributes:
        place: the name, or the collection that the tensor is in.
        start: the point after which it has that name.
        adds: whether it was added to a collection.
        given: whether the name is a parameter, so that only the calls show whether it is used afterwards.
    """

    place: Place
    start: Point
    adds: bool = False
    given: bool = False

    @property
    def holder(self) -> Holder:
        """The holder that keeps the tensor by this name."""
        return Holder(self.place.path, self.adds, self.given)


class Known(NamedTuple):
    """The names of a tensor at a point.

    Attributes:
        members: the names, of which the first is its own.
        parameters: the parameters of the function that it is, or is a part of, such as `batch['image']`.
    """

    members: list[Member]
    parameters: list[str]


class _Stored(NamedTuple):
    """A name that a statement binds to a tensor that has another name.

    Attributes:
        place: the name, or the collection, that is bound.
        adds: whether it is added to a collection.
        same: its other names on all machines.
        paths: its other names on a CPU.
    """

    place: Place
    adds: bool
    same: frozenset[str]
    paths: frozenset[str]


_Stores = dict[Point, list[_Stored]]  # in the order of the source


class _Everything:
    def __contains__(self, point: object) -> bool:
        return True


EVERYTHING = _Everything()
Names = AbstractSet[str] | _Everything


class Aliases:
    """The names of the tensors of a module.

    Args:
        bodies: the bodies of the module.
    """

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._facts = bodies.facts
        self._stored: dict[Point, list[_Stored]] = {}
        self._leading: dict[tuple[Flow, Point, str], set[Point]] = {}
        self._named_at: dict[Flow, dict[str, _Stores]] = {}
        self._same_at: dict[Flow, dict[str, _Stores]] = {}
        self._later_names: dict[tuple[Flow, str], tuple[frozenset[str], bool]] = {}
        self._going_on: dict[Flow, frozenset[str]] = {}
        self._groups: dict[Flow, dict[str, str]] = {}

    def before(self, flow: Flow, point: Point, place: Place) -> Known:
        """Return the names that a place has when a point is reached."""
        found = {place.path: Member(place, point, given=self._given(flow, place.path))}
        parameters: list[str] = []
        todo, seen = [(place.path, point)], {(place.path, point)}
        while todo and len(seen) <= _MANY:
            path, at = todo.pop()
            if self._is_parameter_at(flow, at, path):
                parameters.append(path)
            for other, start in self._named(flow, at, path):
                key = other.place.path, start
                if key not in seen and len(seen) <= _MANY:
                    seen.add(key)
                    todo.append(key)
                    if start in self._leading_to(flow, point, other.place.path):
                        found.setdefault(other.place.path, other)
        return Known([member._replace(start=point) for member in found.values()], parameters)

    def after(self, flow: Flow, members: Sequence[Member], among: Names = EVERYTHING) -> Iterator[Member]:
        """Yield members, and the names that their tensor gets later.

        Args:
            flow: the body.
            members: the names that it has.
            among: the names that matter; others are followed only to further names.
        """
        found = list(members)
        seen = {(member.place.path, member.start) for member in members}
        for member in found:  # which grows
            yield member
            if len(found) <= _MANY:
                later = self._later(flow, member, among)
                new = [other for other in later if (other.place.path, other.start) not in seen]
                seen.update((other.place.path, other.start) for other in new)
                found += new

    def _later(self, flow: Flow, member: Member, among: Names) -> list[Member]:
        """Return the names that a tensor with a name gets later; of many those that come first."""
        stores = self._names(flow).get(member.place.path, {})
        if not stores or not self._any_matters(flow, member.place.path, among):
            return []
        ends = emptying(flow, member.holder)
        reached: Iterable[Point] = islice(flow.reachable([member.start], EVERYTHING, ends), FAR)
        if len(stores) <= _MANY:  # fewer than the points
            reached = set(reached).intersection(stores)
        found = (
            Member(stored.place, point, stored.adds)
            for point in reached
            for stored in self._matter(flow, stores.get(point, ()), among)
        )
        return list(islice(found, _MANY))

    def _any_matters(self, flow: Flow, path: str, among: Names) -> bool:
        """Return whether one of the names that a tensor with a name ever gets matters."""
        if (flow, path) not in self._later_names:
            stored = (each for stores in self._names(flow)[path].values() for each in stores)
            names = frozenset(each.place.path for each in stored)
            self._later_names[flow, path] = names, any(self._goes_on(flow, name) for name in names)
        names, goes_on = self._later_names[flow, path]
        return goes_on or isinstance(among, _Everything) or not names.isdisjoint(among)

    def _matter(self, flow: Flow, stores: Iterable[_Stored], among: Names) -> list[_Stored]:
        return [
            stored
            for stored in stores
            if stored.place.path in among or self._goes_on(flow, stored.place.path)
        ]

    def values(self, flow: Flow, point: Point, path: str) -> list[ast.expr | None]:
        """Return what a path may be bound to when a point is reached, None for what is not known."""
        binders = rebinding(flow, path)
        if not binders:
            return [None]
        found: list[ast.expr | None] = []
        for binder in self._leading_to(flow, point, path) & binders:
            values = [value for holder, value in stores(self._facts, binder) if holder.path == path]
            found += values or [None]
        local = root(path) == path and path in self._facts.tree.scopes[flow.owner].bindings
        return found if local and not self._is_parameter(flow, path) else [*found, None]

    def group(self, flow: Flow, path: str) -> str:
        """Return a name for all names in a body that may ever be those of one tensor."""
        if flow not in self._groups:
            groups = self._groups[flow] = {}
            for point in flow.points:
                for stored in self.stored(point):
                    for other in stored.paths:
                        groups[_first(groups, other)] = _first(groups, stored.place.path)
        return _first(self._groups[flow], path)

    def stored(self, point: Point) -> list[_Stored]:
        """Return what a point binds to tensors that have a name."""
        if point not in self._stored:
            self._stored[point] = list(self._stores(point))
        return self._stored[point]

    def _stores(self, point: Point) -> Iterator[_Stored]:
        for holder, value in stores(self._facts, point):
            inside = list(kept_in(self._facts, value))
            places = [(place_of(self._facts, expression), expression) for expression, _ in inside]
            paths = frozenset(place.path for place, _ in places if place)
            if paths:
                same = frozenset(
                    place.path for place, it in places if place and move_inside(self._facts, it) is None
                )
                yield _Stored(
                    Place(holder.path, any(contained for _, contained in inside) or holder.adds),
                    holder.adds,
                    same,
                    paths,
                )
        for name, iterated in elements(point):
            place = place_of(self._facts, iterated)
            if place is not None and lasting(self._facts, iterated):
                paths = frozenset({place.path})
                yield _Stored(Place(name), False, paths, paths)

    def _goes_on(self, flow: Flow, path: str) -> bool:
        """Return whether what a path names ever gets another name."""
        if flow not in self._going_on:
            stored = (each for point in flow.points for each in self.stored(point))
            self._going_on[flow] = frozenset(path for each in stored for path in each.paths)
        return path in self._going_on[flow]

    def _names(self, flow: Flow) -> dict[str, _Stores]:
        """Return where names are bound to tensors that have another name, by that name."""
        if flow not in self._named_at:
            found = self._named_at[flow] = {}
            for point in flow.points:
                for stored in self.stored(point):
                    for path in stored.paths:
                        found.setdefault(path, {}).setdefault(point, []).append(stored)
        return self._named_at[flow]

    def _same(self, flow: Flow) -> dict[str, _Stores]:
        """Return where names are bound to tensors that have another name on all machines, by both names."""
        if flow not in self._same_at:
            found = self._same_at[flow] = {}
            for point in flow.points:
                for stored in self.stored(point):
                    for path in {stored.place.path, *stored.paths} if stored.same else ():
                        found.setdefault(path, {}).setdefault(point, []).append(stored)
        return self._same_at[flow]

    def _named(self, flow: Flow, at: Point, path: str) -> Iterator[tuple[Member, Point]]:
        """Return other names of what a path is at a point, and where they are that."""
        names = self._same(flow).get(path)
        if not names:
            return
        binders = rebinding(flow, path)
        for point, stored in _stored_at(flow, names, self._leading_to(flow, at, path)):
            if stored.place.path == path and not stored.adds and point in binders:
                for other in stored.same:
                    yield Member(Place(other), point, given=self._given(flow, other)), point
            elif path in stored.same and point not in binders:
                yield Member(stored.place, point, stored.adds), point

    def _is_parameter_at(self, flow: Flow, point: Point, path: str) -> bool:
        """Return whether a path is still a parameter, or a part of one, when a point is reached."""
        if not self._is_parameter(flow, path):
            return False
        first = flow.points[0]
        return not rebinding(flow, path) or point is first or first in self._leading_to(flow, point, path)

    def _leading_to(self, flow: Flow, point: Point, path: str) -> set[Point]:
        """Return the points from which another is reached before a path is rebound."""
        key = flow, point, path
        if key not in self._leading:
            found: set[Point] = set()
            ends = rebinding(flow, path)
            todo = list(flow.before[point])
            while todo and len(found) < FAR:
                before = todo.pop()
                if before not in found:
                    found.add(before)
                    if before not in ends:
                        todo += flow.before[before]
            self._leading[key] = found
        return self._leading[key]

    def _is_parameter(self, flow: Flow, path: str) -> bool:
        return root(path) in self._bodies.parameters(flow.owner)

    def _given(self, flow: Flow, path: str) -> bool:
        """Return whether a path is a parameter of a function, or a part of one other than `self`."""
        name = root(path)
        return name in self._bodies.parameters(flow.owner) and name != self._bodies.receiver(flow.owner)


def _stored_at(
    flow: Flow, stores: _Stores, points: AbstractSet[Point] | None
) -> Iterator[tuple[Point, _Stored]]:
    """Yield what is stored at some points, or at all, in the order of the source."""
    found: Iterable[Point] = stores
    if points is not None and len(points) < len(stores):
        found = flow.sorted(point for point in points if point in stores)
    elif points is not None:
        found = (point for point in stores if point in points)
    for point in found:
        yield from ((point, stored) for stored in stores[point])


def _first(groups: dict[str, str], path: str) -> str:
    while (other := groups.get(path, path)) != path:
        groups[path] = groups.get(other, other)
        path = other
    return path
