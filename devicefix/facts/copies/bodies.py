"""The tensors of one function or module: their names, their uses, and the changes between these."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice

from devicefix.facts.copies.changes import Change, changes_at, everything, trained_by
from devicefix.facts.copies.views import Place, place_of
from devicefix.facts.flow.binding import kept_at
from devicefix.facts.flow.order import Body, Flow
from devicefix.facts.flow.points import Point, is_view, path_of, root
from devicefix.facts.flow.tensors import METHODS
from devicefix.facts.module import Facts
from devicefix.facts.scopes import FUNCTIONS
from devicefix.facts.tree import walk

_NAMES = 16  # of one tensor

Clash = tuple[ast.AST | None, Point]  # a change, None if it is out of sight, and a use after it


@dataclass(frozen=True, slots=True)
class Name:
    """A name that a tensor has in a body, from a point on.

    Attributes:
        place: the name, or the collection that holds the tensor.
        start: the point that gives it the name.
        kept: whether it is that of a copy, and not of its source.
        element: the code of the element of a collection that it is, such as `states[i]`; empty for others.
    """

    place: Place
    start: Point
    kept: bool = False
    element: str = ""


class Tensors:
    """The tensors of one function or module.

    Args:
        facts: the facts of the module.
        owner: the function or module.
    """

    def __init__(self, facts: Facts, owner: Body) -> None:
        self._facts = facts
        self.flow = Flow(owner)
        self._known_changes_at: dict[Point, list[Change]] = {}
        self._known_changes: dict[Place, Mapping[Point, ast.AST]] = {}
        self._known_uses: dict[tuple[Place, bool, str], dict[Point, Point]] = {}

    def clash(self, changed: Name, used: Name) -> Clash | None:
        """Return a change of a tensor by one of its names, and a use of the other side after it."""
        own = {changed.place.path, used.place.path}
        others = self.changes_by_path.keys() - own
        for one in [changed, *islice(self._later_names(changed, own, others), _NAMES)]:
            changes = self.changes(one.place)
            for other in [used, *islice(self._later_names(used, own), _NAMES)] if changes else ():
                start = other.start if one is changed else one.start
                among, ends = self._uses(other), self._ends(other)
                for point in self.flow.before_rebinding(start, one.place.path, among, ends):
                    node = changes.get(point)
                    use = self.use_behind(other, point, node) if node is not None else None
                    if node is not None and use is not None:
                        return node, use
        return None

    def changed_beside(self, source: Name, kept: Name, copy: ast.Call) -> Clash | None:
        """Return a change in the statement of a copy, right of it, and a use: `x.cpu(), x.add_(1)`."""
        for change in self.changes_at(source.start):
            right = (change.node.lineno, change.node.col_offset) >= (copy.end_lineno, copy.end_col_offset)  # type: ignore[attr-defined]
            if right and change.place.path == source.place.path and isinstance(change.node, ast.Call):
                uses = self._uses(kept)
                return next(((change.node, uses[each]) for each in kept.start.after if each in uses), None)
        return None

    def changed_after(self, name: Name) -> ast.AST | None:
        """Return what changes a tensor after it gets a name."""
        changes = self.changes(name.place)
        reached = self.flow.before_rebinding(name.start, name.place.path) if changes else ()
        return next((changes[point] for point in reached if point in changes), None)

    def own(self, name: Name) -> list[Name]:
        """Return the names by which the object of a method keeps a tensor, maybe one that it is given."""
        given = self._given.get(name.place.path, ()) if self._is_given(name.place.path) else ()
        places = [name.place, *(Place(path, indexed=added) for _, path, added in given)]
        return [replace(name, place=each) for each in places if root(each.path) == "self"]

    def _later_names(self, name: Name, but: Set[str], among: Set[str] | None = None) -> Iterator[Name]:
        """Yield the names that a tensor gets later, as in `z = y.view(-1)`, of those that matter."""
        given = {
            point: (path, added)
            for point, path, added in self._given.get(name.place.path, ())
            if path not in but and (among is None or path in among)
        }
        for point in self.flow.before_rebinding(name.start, name.place.path) if given else ():
            if point in given:
                path, added = given[point]
                yield Name(Place(path, indexed=added), point, kept=True)

    @cached_property
    def _given(self) -> dict[str, list[tuple[Point, str, bool]]]:
        """The names that tensors with a name are given, by that name."""
        found: dict[str, list[tuple[Point, str, bool]]] = {}
        for point in self.flow.points:
            for path, expression, contained in kept_at(self._facts, point):
                place = place_of(self._facts, expression)
                if place is not None and place.path != path and not place.parameters:
                    found.setdefault(place.path, []).append((point, path, contained))
        return found

    @cached_property
    def keeping(self) -> list[tuple[str, str]]:
        """The names that keep tensors after the function has returned, each with that of a tensor."""
        found = []
        for point in self.flow.points:
            for path, value, contained in kept_at(self._facts, point):
                if self.outlives_call(Name(Place(path, contained), point, kept=True)):
                    place = place_of(self._facts, value)
                    found += [(path, place.path)] if place is not None else []
        return found

    # -- changes ----------------------------------------------------------------------------------------

    def changes(self, place: Place) -> Mapping[Point, ast.AST]:
        """Return the points that change a tensor, each with what changes it."""
        if place not in self._known_changes:
            by_hand = () if place.parameters else reversed(list(self._touching(place)))
            found = {
                point: change.node
                for point, change in by_hand
                if not (change.item and place.indexed) and not self._facts.is_guarded(change.node)
            }
            of_model = self._trained.get(place.path, {}) if place.parameters else {}
            of_any = self._trained.get("", {}) if place.parameters or place.trained else {}
            self._known_changes[place] = {**found, **of_model, **of_any}
        return self._known_changes[place]

    def _touching(self, place: Place) -> Iterator[tuple[Point, Change]]:
        """Yield the changes of a tensor, of the elements of a collection, or of any of those around it."""
        yield from self.changes_by_path.get(place.path, ())
        for path in self.changes_by_path if place.indexed else ():
            if path.startswith(f"{place.path}["):
                yield from self.changes_by_path[path]
        for point, change in self.changes_by_path.get(place.path.rpartition("[")[0], ()):
            if change.place.indexed and not change.item:
                yield point, change

    def changes_at(self, point: Point) -> list[Change]:
        """Return what is changed at a point."""
        if point not in self._known_changes_at:
            self._known_changes_at[point] = list(changes_at(self._facts, point))
        return self._known_changes_at[point]

    @cached_property
    def changes_by_path(self) -> dict[str, list[tuple[Point, Change]]]:
        """The changes, with the points that make them, by the paths of the tensors."""
        found: dict[str, list[tuple[Point, Change]]] = {}
        for point in self.flow.points:
            for change in self.changes_at(point):
                found.setdefault(change.place.path, []).append((point, change))
        return found

    @cached_property
    def _trained(self) -> dict[str, dict[Point, ast.AST]]:
        """The points that may change the parameters of models, by model; under an empty name those of any."""
        found: dict[str, dict[Point, ast.AST]] = {}
        for point in self.flow.points:
            calls = [node for node in point.nodes if isinstance(node, ast.Call)]
            trained = [(model, call) for call in calls for model in trained_by(self._facts, call)]
            changes = self.changes_at(point)
            by_hand = [(each.place.path, each.node) for each in changes if each.place.parameters]
            for model, node in (*trained, *by_hand):
                found.setdefault(model, {}).setdefault(point, node)
        return found

    # -- uses --------------------------------------------------------------------------------------------

    def use_behind(self, name: Name, point: Point, change: ast.AST) -> Point | None:
        """Return a use of a name after a change, or beside it: `return y.add_(1) - x`."""
        uses = self._uses(name)
        # An assignment changes its target after it has read everything.
        if point in uses and isinstance(change, ast.Call):
            if name.place.path.partition("[")[0] in point.reads_but(change):
                return point
        if point in self._ends(name):
            return None
        return next((uses[after] for after in point.after if after in uses), None)

    def _uses(self, name: Name) -> dict[Point, Point]:
        """Return the points from which a name may still be used, each with such a use."""
        key = name.place, name.kept, name.element
        if key not in self._known_uses:
            overwriting = self._overwriting_of(name)
            reads = [point for point in self.flow.reading(name.place.path) if point not in overwriting]
            exits = [self.flow.exit] if self.outlives_call(name) else []
            self._known_uses[key] = self.flow.leading_to([*reads, *exits], self._ends(name))
        return self._known_uses[key]

    def _ends(self, name: Name) -> set[Point]:
        """Return the points after which a name does not hold a tensor, or its numbers, any more."""
        path = name.place.path
        return self.flow.binding(path).union(self.flow.clearers.get(path, ()), self._overwriting_of(name))

    def _overwriting_of(self, name: Name) -> set[Point]:
        """Return the points that overwrite what a name holds; the other elements of a collection stay."""
        is_collection = name.kept and name.place.indexed
        found = set() if is_collection else self._overwriting.get(name.place.path, set())
        return found | self._overwriting.get(name.element, set())

    @cached_property
    def _overwriting(self) -> dict[str, set[Point]]:
        """The points that overwrite a tensor with other numbers, without reading it, by its path."""
        found: dict[str, set[Point]] = {}
        for point in self.flow.points:
            match point.node:
                case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attr, value=value), args=given)) if (
                    attr in METHODS["overwrite"]
                ):
                    pass
                case ast.Assign(targets=[ast.Subscript(value=value, slice=index)], value=new) if everything(
                    index
                ):
                    given = [new]
                case _:
                    continue
            if isinstance(value, ast.Attribute) and is_view(value):
                value = value.value
            whole = (
                value.value
                if (element := self.element(value)) and isinstance(value, ast.Subscript)
                else value
            )
            path = path_of(whole)
            if path is not None and all(path_of(inner) != path for each in given for inner in walk(each)):
                found.setdefault(element or path, set()).add(point)
        return found

    def element(self, node: ast.expr) -> str:
        """Return the code of an element whose index is bound once, as by a loop; empty for any other node."""
        match node:
            case ast.Subscript(slice=ast.Name() as index) if len(self._facts.bindings(index)) == 1:
                return ast.unparse(node)
        return ""

    def outlives(self, name: Name) -> bool:
        """Return whether what has a name, and maybe later ones, may be used after the function returns."""
        return any(map(self.outlives_call, chain([name], self._later_names(name, {name.place.path}))))

    def outlives_call(self, name: Name) -> bool:
        """Return whether what has a name in a function may be used after the function has returned."""
        path = name.place.path
        if isinstance(self.flow.owner, ast.ClassDef) or path.endswith("()"):  # of a thread, or a generator
            return name.kept
        if isinstance(self.flow.owner, ast.Module) or (not name.kept and path in self.flow.binders):
            return False  # the next call binds it anew
        if not self._is_given(path):
            own = self._facts.tree.scopes[self.flow.owner]
            if not own.bindings.get(root(path)):
                return True
            reads = self._facts.reads_in(own, path) if name.kept and self._has_inner else ()
            inner = {self._facts.tree.scope(each).node for each in reads} - {own.node}  # such as a closure
            return any(isinstance(each, FUNCTIONS) for each in inner)
        inside = root(path) != path
        return (name.place.indexed or inside) if name.kept else (inside and root(path) == "self")

    @cached_property
    def _has_inner(self) -> bool:
        """Return whether a function is defined inside."""
        owner = self.flow.owner
        return any(isinstance(each, FUNCTIONS) for each in walk(owner) if each is not owner)

    def trained_later(self, source: Place, holder: str) -> Clash | None:
        """Return the clash of parameters that an object keeps of a model which it is given."""
        kept = holder.startswith("self.") and source.parameters and self._is_given(source.path)
        return (None, self.flow.exit) if kept else None

    def _is_given(self, path: str) -> bool:
        """Return whether a path starts with a parameter of the function, which nothing binds again."""
        bindings = self._facts.tree.scopes[self.flow.owner].bindings.get(root(path), ())
        return bool(bindings) and all(binding.parameter for binding in bindings)
