"""The search for copies that are used after their source has changed."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice

from devicefix.facts.copies.changes import Changes, everything
from devicefix.facts.copies.held import Held
from devicefix.facts.copies.moves import is_parameter, is_typed
from devicefix.facts.copies.views import (
    Copy,
    Place,
    contents,
    copy_of,
    is_copied,
    is_parameter_at,
    passed,
    place_of,
    root,
)
from devicefix.facts.flow.binding import bound_at
from devicefix.facts.flow.order import Body, Flow
from devicefix.facts.flow.points import Point, is_view, path_of, without_index
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, dotted
from devicefix.facts.tree import Tree, walk
from devicefix.facts.values import last_name

_MOVES = ("cpu", "cuda", "to", "type", "pin_memory", "as_tensor", "asarray", "FloatTensor")
_ADDING = {"append", "appendleft", "extend", "extendleft", "insert", "add"}
_COLLECTIONS = {"dict", "list", "OrderedDict", "defaultdict", "deque"}
_NAMES = 16  # of one tensor
_FAR = 2000  # points: where more lie between a copy and its change, it is not reported
_FILLS = {"copy_", "zero_", "fill_"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Clash = tuple[ast.AST | None, int | None]  # a change, and the line of a use after it; None: out of sight


@dataclass(frozen=True, slots=True)
class _Name:
    """A name that a tensor has in a body, from a point on.

    Attributes:
        place: the name, or the collection that holds the tensor.
        start: the point that gives it the name.
        adds: whether the tensor is added to a collection, whose other elements stay.
        kept: whether it is that of a copy, and not of its source.
    """

    place: Place
    start: Point
    adds: bool = False
    kept: bool = False


@lru_cache(maxsize=1)
def held_copies(facts: Facts) -> tuple[Held, ...]:
    """Return the copies of a module that are used after their source has changed."""
    text = facts.source.text
    if not any(word in text for word in ("cuda", "device", "cpu", "pin_memory")):
        return ()
    found: dict[ast.Call, Held] = {}
    for held in _Search(facts).all():
        found.setdefault(held.call, held)
    return tuple(found.values())


class _Search:
    """The search in one module.

    Args:
        facts: the facts of the module.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._changes = Changes(facts)
        self._bodies: dict[Body, Flow] = {}
        self._known_names: dict[Flow, dict[str, list[tuple[Point, str, bool]]]] = {}
        self._known_uses: dict[tuple[Flow, str, bool, bool], dict[Point, Point]] = {}
        self._pending: dict[tuple[Function, Place], tuple[Copy, ast.AST]] = {}

    def all(self) -> Iterator[Held]:
        """Yield the copies that are kept or changed in place, and share memory that is in use on a CPU."""
        for statement in dict.fromkeys(self._statements()):
            flow = self._body(self._facts.tree.scope(statement).node)
            if flow is not None:
                for part in (statement, *getattr(statement, "cases", ())):
                    for point in flow.by_node.get(part, ()):
                        yield from self._kept(flow, point)
                        yield from self._changed_at_once(flow, point)
        yield from self._passed()

    def _statements(self) -> Iterator[ast.stmt]:
        """Yield the statements that may copy, and those that call a function that may return a copy."""
        tree = self._facts.tree
        for node in chain.from_iterable(map(tree.nodes_with_name, _MOVES)):
            if isinstance(node, ast.Call) and (last_name(node.func) in _MOVES or is_typed(self._facts, node)):
                statement = tree.statement(node)
                yield statement
                owner = tree.scope(statement).node
                if isinstance(statement, ast.Return) and isinstance(owner, Function):
                    calls = (each for each in tree.nodes_with_name(owner.name) if isinstance(each, ast.Call))
                    yield from map(tree.statement, calls)

    def _kept(self, flow: Flow, point: Point) -> Iterator[Held]:
        """Yield the copies that a point keeps, and that clash."""
        for path, adds, value in _stores(self._facts, point):
            for expression, contained in contents(value):
                copy = copy_of(self._facts, expression)
                if copy is None:
                    continue
                place = Place(path, indexed=adds or contained, trained=is_parameter(expression))
                kept = _Name(place, point, adds, kept=True)
                # After `x = x.cuda()`, nothing here names what was copied.
                anew = not point.bound.isdisjoint(_parts(copy.source.path))
                source = [] if anew else [_Name(copy.source, point)]
                clash = self._clash(flow, source, [kept]) or self._trained_later(flow, copy.source, path)
                back = None if clash else self._clash(flow, [kept], source)
                if (found := clash or back) is not None:
                    if is_copied(self._facts, copy):
                        yield Held(copy.call, copy.outer, copy.source, path, *found, reverse=clash is None)
                elif changes := self._changed_after(flow, kept):
                    self._pend(flow, copy, changes[0])

    def _changed_at_once(self, flow: Flow, point: Point) -> Iterator[Held]:
        """Yield the copies that are changed where they are made, as `x.cuda().mul_(2)`: on a CPU, `x` is."""
        changes = [(change, copy_of(self._facts, change.target)) for change in self._changes.at(point)]
        direct = {change.place.path for change, copy in changes if copy is None}
        for change, copy in changes:
            if copy is None or copy.source.path in direct:  # `x.copy_(x.cpu().normal_())`
                continue
            use = self._use_behind(flow, _Name(copy.source, point), point, change.node)
            if use is None:
                self._pend(flow, copy, change.node)
            elif is_copied(self._facts, copy):
                path = copy.source.path
                yield Held(copy.call, copy.outer, copy.source, path, change.node, use[0], reverse=True)

    def _clash(self, flow: Flow, changed: Sequence[_Name], used: Sequence[_Name]) -> Clash | None:
        """Return a change of a tensor by one of its names, and a use of the other side after it."""
        own = {name.place.path for name in (*changed, *used)}
        others = self._changes.by_path(flow).keys() - own
        for one in [*changed, *islice(self._later_names(flow, changed, own, others), _NAMES)]:
            changes = self._changes.of(flow, one.place)
            for other in [*used, *islice(self._later_names(flow, used, own), _NAMES)] if changes else ():
                start = other.start if one in changed else one.start
                uses = self._uses(flow, other)
                ends = _binding(flow, one.place.path), _emptying(flow, other)
                for point in islice(flow.reachable([start], uses, *ends), _FAR):
                    node = changes.get(point)
                    use = self._use_behind(flow, other, point, node) if node is not None else None
                    if use is not None:
                        return node, use[0]
        return None

    def _changed_after(self, flow: Flow, name: _Name) -> list[ast.AST]:
        """Return what changes a tensor after it gets a name."""
        changes = self._changes.of(flow, name.place)
        if not changes:
            return []
        reached = islice(flow.reachable([name.start], flow.before, _binding(flow, name.place.path)), _FAR)
        return [changes[point] for point in reached if point in changes]

    def _later_names(
        self, flow: Flow, names: Sequence[_Name], but: Set[str], among: Set[str] | None = None
    ) -> Iterator[_Name]:
        """Yield the names that a tensor gets later, as in `z = y.view(-1)`, of those that matter."""
        for name in names if among is None or among else ():
            given = [each for each in self._given(flow).get(name.place.path, ()) if each[1] not in but]
            wanted = {point: (path, adds) for point, path, adds in given if among is None or path in among}
            ends = _binding(flow, name.place.path)
            for point in islice(flow.reachable([name.start], flow.before, ends), _FAR) if wanted else ():
                if point in wanted:
                    path, adds = wanted[point]
                    yield _Name(Place(path, indexed=adds), point, adds, kept=True)

    # -- uses --------------------------------------------------------------------------------------------

    def _use_behind(self, flow: Flow, name: _Name, point: Point, change: ast.AST) -> tuple[int | None] | None:
        """Return the line of a use of a name after a change, or beside it: `return y.add_(1) - x`."""
        uses = self._uses(flow, name)
        # An assignment changes its target after it has read everything.
        if point in uses and isinstance(change, ast.Call):
            if name.place.path.partition("[")[0] in point.reads_but(change):
                return (getattr(point.node, "lineno", None),)
        if point in _emptying(flow, name):
            return None
        use = next((uses[after] for after in point.after if after in uses), None)
        return None if use is None else (None if use is flow.exit else getattr(use.node, "lineno", None),)

    def _uses(self, flow: Flow, name: _Name) -> dict[Point, Point]:
        """Return the points from which a name may still be used, each with such a use."""
        key = flow, name.place.path, name.adds, name.kept
        if key not in self._known_uses:
            overwriting = set() if name.adds else _overwriting(flow).get(name.place.path, set())
            reading = (
                point
                for point in _readers(self._facts.tree, flow, name.place.path)
                if point not in overwriting
            )
            found = self._known_uses[key] = {point: point for point in reading}
            if self._outlives_call(flow, name):
                found[flow.exit] = flow.exit
            ends, todo = _emptying(flow, name), deque(found)
            while todo:
                point = todo.popleft()
                for before in flow.before[point]:
                    if before not in found and before not in ends:
                        found[before] = found[point]
                        todo.append(before)
        return self._known_uses[key]

    def _outlives_call(self, flow: Flow, name: _Name) -> bool:
        """Return whether what has a name in a function may be used after the function has returned."""
        if isinstance(flow.owner, ast.Module):
            return False
        path = name.place.path
        bindings = self._facts.tree.scopes[flow.owner].bindings.get(root(path), ())
        if not name.kept and path in flow.binders:  # the next call binds it anew
            return False
        if not bindings:
            return True
        whose = name.kept or root(path) == self._receiver(flow)
        return whose and all(binding.parameter for binding in bindings) and (name.adds or root(path) != path)

    def _trained_later(self, flow: Flow, source: Place, holder: str) -> Clash | None:
        """Return the clash of parameters that an object keeps of a model which it is given."""
        if isinstance(flow.owner, ast.Module) or not source.parameters:
            return None
        bindings = self._facts.tree.scopes[flow.owner].bindings.get(root(source.path), ())
        given = bool(bindings) and all(binding.parameter for binding in bindings)
        return (None, None) if given and holder.startswith(f"{self._receiver(flow)}.") else None

    def _receiver(self, flow: Flow) -> str | None:
        """Return the name that a method gives to its object."""
        owner = flow.owner
        of_class = isinstance(self._facts.tree.parents.get(owner), ast.ClassDef)
        return (
            owner.args.args[0].arg if of_class and isinstance(owner, Function) and owner.args.args else None
        )

    # -- callers -----------------------------------------------------------------------------------------

    def _pend(self, flow: Flow, copy: Copy, change: ast.AST) -> None:
        """Keep in mind that a function changes its parameter on a CPU, for its calls."""
        if isinstance(flow.owner, Function) and is_parameter_at(self._facts, copy.base):
            self._pending.setdefault((flow.owner, copy.source), (copy, change))

    def _passed(self) -> Iterator[Held]:
        """Yield the copies of parameters that are changed, where the argument is used after a call."""
        for (function, source), (copy, change) in self._pending.items():
            for flow, point, call in self._calls(function):
                place = passed(self._facts, call, function, source)
                use = self._use_behind(flow, _Name(place, point), point, call) if place is not None else None
                if use is not None and is_copied(self._facts, copy):
                    path = source.path
                    yield Held(copy.call, copy.outer, source, path, change, use[0], reverse=True)
                    break

    def _calls(self, function: Function) -> Iterator[tuple[Flow, Point, ast.Call]]:
        """Yield the calls of a function, or of a method of its name."""
        tree = self._facts.tree
        is_method = isinstance(tree.parents.get(function), ast.ClassDef)
        for call in tree.nodes_with_name(function.name):
            if isinstance(call, ast.Call) and last_name(call.func) == function.name:
                flow = self._body(tree.scope(call).node)
                if flow is not None and isinstance(call.func, ast.Attribute) is is_method:
                    of_call = flow.by_node.get(tree.statement(call), ())
                    yield from ((flow, point, call) for point in of_call if call in point.nodes)

    # -- bodies ------------------------------------------------------------------------------------------

    def _body(self, owner: ast.AST) -> Flow | None:
        """Return the flow of a function or module."""
        if not isinstance(owner, Body):
            return None
        if owner not in self._bodies:
            self._bodies[owner] = Flow(owner)
        return self._bodies[owner]

    def _given(self, flow: Flow) -> dict[str, list[tuple[Point, str, bool]]]:
        """Return the names that tensors with a name are given in a body, by that name."""
        if flow not in self._known_names:
            found = self._known_names[flow] = {}
            for point in flow.points:
                for path, adds, value in _stores(self._facts, point):
                    for expression, contained in contents(value):
                        place = place_of(self._facts, expression)
                        if place is not None and place.path != path and not place.parameters:
                            found.setdefault(place.path, []).append((point, path, adds or contained))
        return self._known_names[flow]


def _stores(facts: Facts, point: Point) -> Iterator[tuple[str, bool, ast.expr]]:
    """Yield the values that a statement keeps, each with what keeps it, and whether that is a collection."""
    for target, value in bound_at(facts, point):
        if isinstance(target, ast.Subscript):
            path = dotted(without_index(target))
            if path and facts.once(_all_collections, facts.bindings(without_index(target))):
                yield path, True, value
        elif (path := dotted(target)) and not (
            isinstance(target, ast.Attribute) and (target.attr == "grad" or is_view(target))
        ):
            yield path, False, value
    match point.node:
        case ast.AugAssign(op=ast.Add(), target=target, value=ast.List() | ast.Tuple() as value):
            given = [value]
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attr, value=target), args=given)) if (
            attr in _ADDING
        ):
            pass
        case _:
            return
    if path := dotted(without_index(target)):
        yield from ((path, True, value) for value in given)


def _all_collections(_facts: Facts, bindings: Sequence[Binding]) -> bool:
    """Return whether a name is bound to dicts or lists, whose items are kept and not copied into."""
    values = [binding.value for binding in bindings]
    return bool(values) and all(
        isinstance(value, (ast.Dict, ast.List, ast.DictComp, ast.ListComp))
        or (isinstance(value, ast.Call) and last_name(value.func) in _COLLECTIONS)
        for value in values
    )


def _binding(flow: Flow, path: str) -> set[Point]:
    """Return the points that bind a path anew, or what it is an attribute or item of."""
    return {point for part in _parts(path) for point in flow.binders.get(part, ())}


def _parts(path: str) -> list[str]:
    """Return a path and what it starts with: `a`, `a.b` and `a.b['c']` for the last."""
    return [path[: match.start()] for match in re.finditer(r"[.\[]|\Z", path)]


def _emptying(flow: Flow, name: _Name) -> set[Point]:
    """Return the points after which a name does not hold a tensor, or its numbers, any more."""
    path = name.place.path
    found = _binding(flow, path).union(flow.clearers.get(path, ()))
    return found if name.adds else found.union(_overwriting(flow).get(path, ()))


@lru_cache(maxsize=4)
def _overwriting(flow: Flow) -> dict[str, set[Point]]:
    """Return the points that overwrite a tensor with other numbers, without reading it, by its path."""
    found: dict[str, set[Point]] = {}
    for point in flow.points:
        match point.node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attr, value=value), args=given)) if (
                attr in _FILLS
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
        path = path_of(value)
        if path is not None and not any(path_of(inner) == path for each in given for inner in walk(each)):
            found.setdefault(path, set()).add(point)
    return found


def _readers(tree: Tree, flow: Flow, path: str) -> Iterator[Point]:
    """Yield the points that read a path; of `batch['image']` those that read this item, or the whole."""
    plain, bracket, _ = path.partition("[")
    for point in flow.readers.get(plain, ()):
        if not bracket or any(_may_read(tree, node, plain, path) for node in point.nodes):
            yield point


def _may_read(tree: Tree, node: ast.AST, plain: str, path: str) -> bool:
    """Return whether a node reads an item by a constant key, or the whole that it is an item of."""
    if not isinstance(getattr(node, "ctx", None), ast.Load):
        return False
    found = path_of(node)
    return found == path or (found == plain and path_of(tree.parents[node]) is None)
