"""The search for copies that are used after their source has changed."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from devicefix.facts.copies.aliases import EVERYTHING, Aliases, Member
from devicefix.facts.copies.bodies import Bodies, Function
from devicefix.facts.copies.calls import Calls
from devicefix.facts.copies.changes import Changes
from devicefix.facts.copies.clashes import Clashes
from devicefix.facts.copies.copying import Copies, Copy
from devicefix.facts.copies.expressions import root
from devicefix.facts.copies.inside import kept_in
from devicefix.facts.copies.keeping import Holder, outlives_call, overwriting, rebinding, stores
from devicefix.facts.copies.leaves import is_parameter
from devicefix.facts.copies.moves import goes_to_cpu, is_there
from devicefix.facts.copies.places import Place, place_of
from devicefix.facts.copies.uses import OUT_OF_SIGHT
from devicefix.facts.flow.order import Body, Flow, Point
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Scope, dotted

_COPYING = (
    ".cpu", ".cuda", ".to", ".type", ".type_as", ".pin_memory", "as_tensor", "asarray", "Tensor",
    "getattr", "methodcaller", "partial",
)  # fmt: skip
_OF_MODULES = {
    "parameters",
    "named_parameters",
    "state_dict",
    "load_state_dict",
    "eval",
    "train",
    "zero_grad",
}
_CALLED = re.compile(r"\s*(?:\)\s*)?\(")
_SPACED = re.compile(r"\.\s+(?:cpu|cuda|to)\s*\(")  # `x . cuda ()`


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
    if not any(word in text for word in ("cuda", "device", "pin_memory", ".cpu(")):
        return ()
    places = list(_copying(text))
    return tuple(_Search(facts, places).held()) if places else ()


def _copying(text: str) -> Iterator[int]:
    """Return the places of calls that may copy."""
    for word in _COPYING:  # one by one: several times as fast as a regular expression for all
        at = text.find(word)
        while at >= 0:
            if _CALLED.match(text, at + len(word)):
                yield at
            at = text.find(word, at + 1)
    yield from (match.start() for match in _SPACED.finditer(text))


_At = tuple[Point, ast.AST]  # a change, and where it happens
_Passed = tuple[Copy, ast.AST | None]  # a copy of a parameter, and its change, None for training
_WORD = re.compile(r"\w+")
_Names = Callable[..., Iterable[Member]]  # the names of a tensor that are followed


class _Search:
    """The search in one module.

    Args:
        facts: the facts of the module.
        places: the places of calls that may copy.
    """

    def __init__(self, facts: Facts, places: Sequence[int]) -> None:
        self._facts = facts
        self._places = places
        self._bodies = Bodies(facts)
        self._copies = Copies(self._bodies)
        self._changes = Changes(self._bodies)
        self._aliases = Aliases(self._bodies)
        self._calls = Calls(self._bodies)
        self._clashes = Clashes(self._bodies, self._changes, self._aliases)
        self._pending: dict[tuple[Function, str], _Passed] = {}

    def held(self) -> Iterator[Held]:
        """Return the copies that are kept, each once."""
        found: dict[ast.Call, Held] = {}
        for held in self._all():
            found.setdefault(held.call, held)
        return iter(found.values())

    def _all(self) -> Iterator[Held]:
        for owner in self._bodies.owners:
            if self._may_copy(owner):
                flow = self._bodies.flow(owner)
                for point in filter(self._copies_at, flow.points):
                    yield from self._kept(flow, point)
                    yield from self._changed_directly(flow, point)
        yield from self._passed()

    def _may_copy(self, owner: Body) -> bool:
        if isinstance(owner, ast.Module):
            return bool(self._lines)
        return self._between(owner.lineno, owner.end_lineno or owner.lineno)

    def _copies_at(self, point: Point) -> bool:
        """Return whether the lines of a point hold what may be a copy."""
        parts = point.parts if point.value is None else (*point.parts, point.value)
        return any(
            self._between(getattr(part, "lineno", 0), getattr(part, "end_lineno", 0)) for part in parts
        )

    def _between(self, first: int, last: int) -> bool:
        at = bisect_left(self._lines, first)
        return at < len(self._lines) and self._lines[at] <= last

    @cached_property
    def _lines(self) -> list[int]:
        """Return the lines that hold what may be a copy, in order."""
        source = self._facts.source
        found = list(self._places)
        returning = self._copies.returning
        if returning:
            found += (match.start() for match in _WORD.finditer(source.text) if match[0] in returning)
        return [source.position(at)[0] for at in sorted(found)]

    def _kept(self, flow: Flow, point: Point) -> Iterator[Held]:
        """Return the copies that are made and kept at a point."""
        for holder, value in stores(self._facts, point):
            for expression, contained in kept_in(self._facts, value):
                copy = self._copies.of(expression)
                if copy is None or self._is_of_lambda(copy):
                    continue
                trained = is_parameter(expression)
                place = Place(holder.path, indexed=holder.adds or contained, trained=trained)
                if not self._may_clash(flow, (*copy.places, place)):  # most are not: the rest takes time
                    continue
                if self._is_there(flow, point, copy) or self._is_module(copy):
                    continue
                kept = Member(place, point, holder.adds)
                held = self._clashing(flow, point, copy, kept, _only)
                held = held or self._clashing(flow, point, copy, kept, self._aliases.after)
                if held is not None:
                    yield held

    def _is_of_lambda(self, copy: Copy) -> bool:
        """Return whether the source is the parameter of a lambda, which nothing outside of it can name."""
        found = self._facts.tree.scope(copy.call).lookup(root(copy.source.path))
        return found is not None and isinstance(found[0].node, ast.Lambda)

    def _may_clash(self, flow: Flow, places: Iterable[Place]) -> bool:
        """Return whether a source or its copy may be changed: in its body, or as an attribute elsewhere."""
        return any("." in place.path or self._clashes.may_clash(flow, place) for place in places)

    def _clashing(self, flow: Flow, point: Point, copy: Copy, kept: Member, names: _Names) -> Held | None:
        """Return a copy that is used after its source has changed, or changes before its source is used."""
        return self._source_changed(flow, point, copy, kept, names) or self._copy_changed(
            flow, point, copy, kept, names
        )

    def _source_changed(
        self, flow: Flow, point: Point, copy: Copy, kept: Member, names: _Names
    ) -> Held | None:
        """Return a copy that is used after its source is changed in place."""
        for place in copy.places:
            clash = None
            if self._clashes.may_clash(flow, place):
                known = _still(flow, self._aliases.before(flow, point, place).members)
                changed = names(flow, known, self._changes.paths(flow))
                clash = self._clashes.find(flow, changed, names(flow, [kept]))
            clash = clash or self._clashes.elsewhere(flow, place, kept.holder)
            if clash is not None:
                return Held(copy.call, copy.outer, place, kept.place.path, clash.change, clash.use)
        return None

    def _copy_changed(self, flow: Flow, point: Point, copy: Copy, kept: Member, names: _Names) -> Held | None:
        """Return a copy that is changed in place, and whose source is used after that."""
        changed = [kept] if self._clashes.may_clash(flow, kept.place) else []
        changed = list(names(flow, changed, self._changes.paths(flow)))
        is_changed = any(True for _ in self._clashes.changes(flow, changed))
        for place in copy.places:
            clash = None
            if kept.place.trained:
                self._pend_trained(flow, copy, kept, self._aliases.before(flow, point, place).parameters)
            if is_changed:
                known = self._aliases.before(flow, point, place)
                self._pend(flow, copy, self._clashes.changes(flow, changed), known.parameters)
                clash = self._clashes.find(flow, changed, names(flow, _still(flow, known.members)))
                if clash is not None and not clash.use and not self._read_again(flow, known.members):
                    clash = None
            clash = clash or self._clashes.elsewhere(flow, kept.place, Holder(place.path, False))
            if clash is not None:
                return Held(copy.call, copy.outer, place, kept.place.path, clash.change, clash.use, True)
        return None

    def _read_again(self, flow: Flow, members: list[Member]) -> bool:
        """Return whether one of some names may be read after a function has returned."""
        return any(
            self._clashes.is_read_again(flow, member.place.path)
            for member in members
            if outlives_call(self._facts, flow, member.holder)
        )

    def _changed_directly(self, flow: Flow, point: Point) -> Iterator[Held]:
        """Return copies such as `x.cuda().mul_(2)`, which changes `x` itself on a CPU."""
        for node, change in self._changes.changed(point):
            copy = self._copies.of(change.node)
            if copy is None or self._is_there(flow, point, copy) or change.place.path != copy.source.path:
                continue
            if change.received or self._changes.at(point, copy.source, node) is not None:
                continue  # `x.copy_(x.cpu().normal_())`: it changes in any case
            for place in copy.places:
                known = self._aliases.before(flow, point, place)
                self._pend(flow, copy, [(point, node)], known.parameters)
                use = self._used_after(flow, point, node, known.members)
                if use is not None:
                    yield Held(copy.call, copy.outer, place, place.path, node, use or None, True)
                    break

    def _used_after(self, flow: Flow, point: Point, change: ast.AST, members: list[Member]) -> int | None:
        """Return the line of a use of one of some names after a change, `OUT_OF_SIGHT`, or None."""
        names = list(self._aliases.after(flow, _still(flow, members)))
        uses = [self._clashes.uses(flow, member.holder).behind(point, change) for member in names]
        last = OUT_OF_SIGHT if OUT_OF_SIGHT in uses and self._read_again(flow, names) else None
        return next(filter(None, uses), last)

    def _used_after_training(self, flow: Flow, point: Point, members: list[Member]) -> int | None:
        """Return the line of a use of one of some names after an optimizer's step, or None."""
        training = Member(Place("", trained=True), point)
        clash = self._clashes.find(flow, [training], self._aliases.after(flow, _still(flow, members)))
        return None if clash is None else clash.use

    def _pend(self, flow: Flow, copy: Copy, changes: Iterable[_At], parameters: Sequence[str]) -> None:
        """Keep in mind that a function changes its parameters on a CPU, for its calls."""
        for path in parameters:
            if not isinstance(flow.owner, Function) or (flow.owner, path) in self._pending:
                continue
            # `x.copy_(y)` gives the caller's tensor the same numbers on all machines.
            ends = set() if rebinding(flow, path) else overwriting(flow).get(path, set())
            for point, change in changes:
                if flow.exit in flow.reachable([point], EVERYTHING, ends):
                    self._pending[flow.owner, path] = copy, change
                    break

    def _pend_trained(self, flow: Flow, copy: Copy, kept: Member, parameters: Sequence[str]) -> None:
        """Keep in mind that training changes the parameters of a method that keeps them as an attribute."""
        receiver = self._bodies.receiver(flow.owner)
        if isinstance(flow.owner, Function) and kept.place.path.startswith(f"{receiver}."):
            for path in parameters:
                self._pending.setdefault((flow.owner, path), (copy, None))

    def _passed(self) -> Iterator[Held]:
        """Return copies of parameters that are changed in place, where an argument is used after the call."""
        reported: set[ast.Call] = set()
        for (function, path), (copy, change) in self._followed():
            if copy.call in reported:
                continue
            for flow, point, argument in self._calls.of(function, root(path)):
                place = place_of(self._facts, argument)
                if place is None:
                    continue
                place = Place(place.path + path.removeprefix(root(path)))
                members = self._aliases.before(flow, point, place).members
                if change is None:
                    use = self._used_after_training(flow, point, members)
                else:
                    call = self._facts.tree.parents[argument]
                    use = self._used_after(flow, point, call, members)
                if use is not None:
                    reported.add(copy.call)
                    yield Held(copy.call, copy.outer, Place(path), path, change, use or None, True)
                    break

    def _followed(self) -> Iterator[tuple[tuple[Function, str], _Passed]]:
        """Return the changed parameters, also of functions that pass their own parameters on."""
        todo = list(self._pending.items())
        for key, found in todo:  # which grows
            yield key, found
            function, path = key
            for flow, point, argument in self._calls.of(function, root(path)):
                place = place_of(self._facts, argument)
                if place is not None and isinstance(flow.owner, Function):
                    place = Place(place.path + path.removeprefix(root(path)))
                    for parameter in self._aliases.before(flow, point, place).parameters:
                        if (flow.owner, parameter) not in self._pending:
                            self._pending[flow.owner, parameter] = found
                            todo.append(((flow.owner, parameter), found))

    def _is_there(self, flow: Flow, point: Point, copy: Copy) -> bool:
        """Return whether the move does the same on all machines, or happens only where CUDA is available."""
        moved = False
        if not copy.moved:
            values = self._aliases.values(flow, point, copy.source.path)
            to_cpu = goes_to_cpu(self._facts, copy.call)
            moved = bool(values) and all(value and is_there(self._facts, value, to_cpu) for value in values)
        return moved or (self._facts.is_guarded(copy.call) and not self._is_replaced(copy))

    def _is_replaced(self, copy: Copy) -> bool:
        """Return whether the source takes the place of a copy on a CPU: `x.cuda() if available else x`."""
        parents = self._facts.tree.parents
        node: ast.AST = copy.call
        while isinstance(parent := parents.get(node), ast.expr):
            if isinstance(parent, ast.IfExp) and node is not parent.test:
                other = place_of(self._facts, parent.orelse if node is parent.body else parent.body)
                if other is not None and other.path == copy.source.path:
                    return not self._facts.is_guarded(parent)
            node = parent
        return False

    def _is_module(self, copy: Copy) -> bool:
        """Return whether what a copy is made of is shown to be a module, whose moves return itself."""
        path = copy.source.path
        return not copy.source.parameters and (self._owner(copy.call, path), path) in self._modules

    @cached_property
    def _modules(self) -> frozenset[tuple[Scope | None, str]]:
        """Return the paths on which methods are called that only modules have, each with its scope."""
        found: set[tuple[Scope | None, str]] = set()
        for word in ("parameters", "state_dict", "eval", "train"):
            for node in self._facts.tree.nodes_with(word):
                if isinstance(node, ast.Attribute) and node.attr in _OF_MODULES:
                    path = dotted(node.value) or ""
                    found.add((self._owner(node, path), path))
        return frozenset(found)

    def _owner(self, node: ast.AST, path: str) -> Scope | None:
        """Return the scope that binds the first name of a path, None for `self`: each method has its own."""
        name = path.partition(".")[0]
        found = self._facts.tree.scope(node).lookup(name) if name != "self" else None
        return found[0] if found is not None else None


def _only(_flow: Flow, members: list[Member], _among: Container[str] = ()) -> list[Member]:
    """Return some names and no others: most tensors have only one, which is soon looked at."""
    return members


def _still(flow: Flow, members: list[Member]) -> list[Member]:
    """Return the names that a tensor still has behind the point where they start."""
    return [member for member in members if member.start not in rebinding(flow, member.place.path)]
