"""Changes in place of a value while a copy of it is kept, and used afterwards."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from devicefix.facts.copies.aliases import EVERYTHING, Aliases, Member
from devicefix.facts.copies.bodies import Bodies, Function
from devicefix.facts.copies.changes import Changes
from devicefix.facts.copies.expressions import root
from devicefix.facts.copies.keeping import Holder, only_given, parts, rebinding
from devicefix.facts.copies.places import Place
from devicefix.facts.copies.uses import FAR, OUT_OF_SIGHT, Uses
from devicefix.facts.flow.order import Flow, Point

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
        aliases: the names of its tensors.
    """

    def __init__(self, bodies: Bodies, changes: Changes, aliases: Aliases) -> None:
        self._bodies = bodies
        self._facts = bodies.facts
        self._changes = changes
        self._aliases = aliases
        self._uses: dict[tuple[Flow, Holder], Uses] = {}
        self._changed_groups: dict[Flow, frozenset[str]] = {}
        self._read: dict[ast.ClassDef, dict[str, set[Function]]] = {}
        self._bound: dict[ast.ClassDef, dict[str, set[Function]]] = {}
        self._changed: dict[tuple[ast.ClassDef, Place], list[tuple[Function, ast.AST]]] = {}

    def may_clash(self, flow: Flow, place: Place) -> bool:
        """Return whether a tensor that a place ever names may be changed in a body."""
        if place.parameters or place.trained:
            return True
        if flow not in self._changed_groups:
            paths = self._changes.paths(flow)
            self._changed_groups[flow] = frozenset(self._aliases.group(flow, path) for path in paths)
        changed = self._changed_groups[flow]
        return bool(changed) and self._aliases.group(flow, place.path) in changed

    def find(self, flow: Flow, changed: Iterable[Member], used: Iterable[Member]) -> Clash | None:
        """Return a change of one of some names of a tensor, before a use of one of those of its copy."""
        among = [member for member in changed if self._changes.within(flow, member.place)]
        if among:
            for other in used:
                for member in among:
                    clash = self._find(flow, member, other)
                    if clash is not None:
                        return clash
        return None

    def _find(self, flow: Flow, changed: Member, used: Member) -> Clash | None:
        uses = self.uses(flow, used.holder)
        together = changed.start is used.start
        ends = rebinding(flow, changed.place.path)
        # What is kept and not used any more does not matter.
        paths = flow.reachable([used.start], uses.leading, uses.emptied, ends if together else ())
        for point in islice(paths, FAR):
            change = self._changes.at(point, changed.place)
            use = uses.behind(point, change) if change is not None else None
            if use is not None and (together or point in flow.reachable([changed.start], EVERYTHING, ends)):
                return Clash(change, use if use != OUT_OF_SIGHT else None)
        return None

    def changes(self, flow: Flow, changed: Iterable[Member]) -> Iterator[tuple[Point, ast.AST]]:
        """Return the changes of some names of a tensor, each with its point."""
        for member in changed:
            if self._changes.within(flow, member.place):
                ends = rebinding(flow, member.place.path)
                for point in islice(flow.reachable([member.start], EVERYTHING, ends), FAR):
                    change = self._changes.at(point, member.place)
                    if change is not None:
                        yield point, change

    def uses(self, flow: Flow, keeper: Holder) -> Uses:
        """Return the uses of what is kept."""
        key = flow, keeper
        if key not in self._uses:
            if len(self._uses) >= _KEPT:
                self._uses.clear()
            self._uses[key] = Uses(self._facts, flow, keeper, self._used_by_functions(flow, keeper.path))
        return self._uses[key]

    def _used_by_functions(self, flow: Flow, path: str) -> Iterator[Point]:
        """Return the points that use a function which reads a variable of this body."""
        for name in self._reading.get(flow.owner, {}).get(path, ()):
            yield from flow.readers.get(name, ())

    @cached_property
    def _reading(self) -> dict[ast.AST, dict[str, set[str]]]:
        """Return the functions that read variables of a body around them, by body and path."""
        reading: dict[ast.AST, dict[str, set[str]]] = {}
        for function in self._bodies.functions:
            scope = self._facts.tree.scopes[function]
            for path in self._bodies.flow(function).readers:
                found = None if root(path) in scope.bindings else scope.lookup(root(path))
                if found is not None:
                    reading.setdefault(found[0].node, {}).setdefault(path, set()).add(function.name)
        return reading

    def elsewhere(self, flow: Flow, changed: Place, used: Holder) -> Clash | None:
        """Return a change in another method of the class, or of a model's parameters by the caller."""
        if isinstance(flow.owner, ast.Module):
            return None
        receiver = self._bodies.receiver(flow.owner)
        # After `self.x = self.x.cuda()` nothing else has that name.
        if not used.path.startswith(f"{receiver}.") or used.path == changed.path:
            return None
        if changed.parameters and only_given(self._facts, flow, root(changed.path)):
            return Clash(None, None)
        owner = self._facts.tree.parents.get(flow.owner)
        if not isinstance(owner, ast.ClassDef) or not changed.path.startswith(f"{receiver}."):
            return None
        if used.path not in self._readers(owner):
            return None
        if any(not methods <= {flow.owner} for methods in self._binders(owner, changed.path)):
            return None
        if changed.trained:
            return Clash(None, None) if self._readers(owner)[used.path] - {flow.owner} else None
        changes = self._changed_in(owner, changed)
        change = next((node for method, node in changes if method is not flow.owner), None)
        return None if change is None else Clash(change, None)

    def is_read_again(self, flow: Flow, path: str) -> bool:
        """Return whether an attribute is read after a method has returned, also when it is called again."""
        owner = self._facts.tree.parents.get(flow.owner)
        if not isinstance(owner, ast.ClassDef) or isinstance(flow.owner, ast.Module):
            return True
        if not self._readers(owner).get(path, set()) <= {flow.owner}:
            return True
        methods = _but_the_first(owner)
        return flow.owner in methods and not any(
            rebinding(self._bodies.flow(method), path) for method in methods
        )

    def _readers(self, owner: ast.ClassDef) -> dict[str, set[Function]]:
        """Return the methods of a class that read a path, by path."""
        if owner not in self._read:
            found = self._read[owner] = {}
            for method in _methods(owner):
                for path in self._bodies.flow(method).readers:
                    found.setdefault(path, set()).add(method)
        return self._read[owner]

    def _binders(self, owner: ast.ClassDef, path: str) -> list[set[Function]]:
        """Return the methods of a class other than `__init__` that rebind the parts of a path."""
        if owner not in self._bound:
            found = self._bound[owner] = {}
            for method in _but_the_first(owner):
                for bound in self._bodies.flow(method).binders:
                    found.setdefault(bound, set()).add(method)
        return [self._bound[owner][part] for part in parts(path) if part in self._bound[owner]]

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
