"""The names and collections that keep a value, and how long."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from devicefix.facts.copies.binding import bound_at
from devicefix.facts.copies.expressions import assigned_whole, element_pairs, root
from devicefix.facts.flow.order import Flow, Point, is_view, path_of, without_index
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, dotted
from devicefix.facts.values import last_name

_ADDING = {"append", "appendleft", "extend", "extendleft", "insert", "add"}
_COLLECTIONS = {"dict", "list", "OrderedDict", "defaultdict", "deque", "state_dict"}


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder that keeps a value.

    Attributes:
        path: its name or dotted path.
        adds: whether the value is added to a collection, whose other elements stay.
        given: whether it is the caller's, so that only the calls show whether it is used afterwards.
    """

    path: str
    adds: bool
    given: bool = False


def stores(facts: Facts, point: Point) -> Iterator[tuple[Holder, ast.expr]]:
    """Return the values that a statement keeps, each with its holder."""
    for target, value in bound_at(facts, point):
        yield from _stored(facts, target, value)
    match point.node:
        case ast.AugAssign(op=ast.Add(), target=target, value=ast.List() | ast.Tuple() as value):
            path = dotted(target)
            if path:
                yield Holder(path, True), value
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attr, value=receiver), args=args)):
            path = dotted(without_index(receiver))
            if attr in _ADDING and path:
                for value in args:
                    yield Holder(path, True), value


def _stored(facts: Facts, target: ast.expr, value: ast.expr) -> Iterator[tuple[Holder, ast.expr]]:
    if isinstance(target, (ast.Name, ast.Attribute)):
        path = dotted(target)
        if path and not (isinstance(target, ast.Attribute) and (target.attr == "grad" or is_view(target))):
            yield Holder(path, False), value
    elif isinstance(target, ast.Subscript):
        base = without_index(target)
        path = dotted(base)
        if path and _collection(facts, base):
            yield Holder(path, True), value


def elements(point: Point) -> Iterator[tuple[str, ast.expr]]:
    """Return the variables of the loop that a point begins a round of, with what they are elements of."""
    if isinstance(point.node, (ast.For, ast.AsyncFor)) and point.binds:
        for target, iterated in element_pairs(point.node.target, point.node.iter):
            if isinstance(target, ast.Name):
                yield target.id, iterated


def _collection(facts: Facts, node: ast.expr) -> bool:
    """Return whether a name is bound to a dict or list, whose items are kept and not copied into."""
    return facts.once(_all_collections, facts.bindings(node))


def _all_collections(_facts: Facts, bindings: Sequence[Binding]) -> bool:
    values = [binding.value for binding in bindings]
    return bool(values) and all(
        isinstance(value, (ast.Dict, ast.List, ast.DictComp, ast.ListComp))
        or (isinstance(value, ast.Call) and last_name(value.func) in _COLLECTIONS)
        or (isinstance(value, ast.BinOp) and isinstance(value.left, ast.List))
        for value in values
    )


def parts(path: str) -> list[str]:
    """Return a path and the paths it starts with: `a`, `a.b` and `a.b['c']` for the last."""
    return [*(path[: match.start()] for match in re.finditer(r"[.\[]", path)), path]


def rebinding(flow: Flow, path: str) -> set[Point]:
    """Return the points that rebind a path, or what it is an attribute or item of."""
    return {point for part in parts(path) for point in flow.binders.get(part, ())}


def emptying(flow: Flow, holder: Holder) -> set[Point]:
    """Return the points after which nothing is kept by a holder any more."""
    found = rebinding(flow, holder.path).union(flow.clearers.get(holder.path, ()))
    return found if holder.adds else found.union(overwriting(flow).get(holder.path, ()))


@lru_cache(maxsize=4)
def overwriting(flow: Flow) -> dict[str, set[Point]]:
    """Return the points that overwrite a tensor with other numbers, without reading it, by its path."""
    found: dict[str, set[Point]] = {}
    for point in flow.points:
        value = assigned_whole(point.node)
        if isinstance(value, ast.Attribute) and is_view(value):
            value = value.value
        path = path_of(value) if value is not None else None
        if path is not None and not _reads_as_well(point.node, path):
            found.setdefault(path, set()).add(point)
    return found


def _reads_as_well(node: ast.AST, path: str) -> bool:
    """Return whether a statement that overwrites a tensor also reads it, as in `x.copy_(x + 1)`."""
    match node:
        case ast.Expr(value=ast.Call(args=arguments)):
            given = arguments
        case ast.Assign(value=value):
            given = [value]
        case _:
            return False
    return any(path_of(inner) == path for argument in given for inner in ast.walk(argument))


def persists(facts: Facts, flow: Flow, path: str) -> bool:
    """Return whether the root of a path is bound outside the function, and so outlives its call."""
    if isinstance(flow.owner, ast.Module):
        return False
    scope = facts.tree.scopes[flow.owner]
    return root(path) in scope.elsewhere or root(path) not in scope.bindings


def only_given(facts: Facts, flow: Flow, path: str) -> bool:
    """Return whether a path is a parameter that is never rebound."""
    if isinstance(flow.owner, ast.Module):
        return False
    return facts.once(_all_parameters, facts.tree.scopes[flow.owner].bindings.get(path, ()))


def _all_parameters(_facts: Facts, bindings: Sequence[Binding]) -> bool:
    return bool(bindings) and all(binding.parameter for binding in bindings)


def outlives_call(facts: Facts, flow: Flow, holder: Holder) -> bool:
    """Return whether what is kept outlives the call of the function."""
    if isinstance(flow.owner, ast.Module) or holder.given:
        return False
    if persists(facts, flow, holder.path):
        return True
    name = root(holder.path)
    bindings = facts.tree.scopes[flow.owner].bindings[name]
    return all(binding.parameter for binding in bindings) and (holder.adds or name != holder.path)
