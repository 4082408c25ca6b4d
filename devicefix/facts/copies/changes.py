"""Changes in place of tensors and NumPy arrays."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from devicefix.facts.copies.bodies import Bodies, Function, positional_names
from devicefix.facts.copies.expressions import constant_key, in_place, keyword
from devicefix.facts.copies.places import Place, place_of
from devicefix.facts.copies.training import Training
from devicefix.facts.flow import Flow, Point, without_index
from devicefix.facts.module import Facts
from devicefix.facts.scopes import dotted
from devicefix.facts.values import last_name

# Methods that end in an underscore and change no number.
_HARMLESS = {
    "requires_grad_", "detach_", "retain_grad_", "share_memory_", "rename_", "squeeze_", "unsqueeze_", "t_",
    "transpose_", "swapaxes_", "resize_", "resize_as_", "set_", "pin_memory_", "clip_grad_norm_",
    "clip_grad_value_",
}  # fmt: skip
_NUMPY_CHANGES = {"fill", "sort", "itemset", "setfield", "byteswap"}
_CHANGING = (ast.AugAssign, ast.Call, ast.Subscript)  # the nodes that may change something
_FIRST_ARGUMENT = re.compile(
    r"(numpy|np)\.(copyto|put|place|putmask|fill_diagonal)|(numpy\.|np\.)?random\.shuffle"
    r"|(torch\.distributed|dist)\.(all_reduce|broadcast|recv|irecv)|(torch\.nn\.init|nn\.init|init)\.\w+_"
)


class Change(NamedTuple):
    """What is changed in place; `item` where one item of it is set, which may be one of a list."""

    place: Place
    item: bool


class Changes:
    """What the statements of a module change in place.

    Args:
        bodies: the bodies of the module.
    """

    def __init__(self, bodies: Bodies) -> None:
        self._facts = bodies.facts
        self._training = Training(bodies)
        self._effects = _Effects(bodies)
        self._changing: dict[Point, dict[str, list[tuple[ast.AST, bool]]]] = {}
        self._training_at: dict[tuple[Point, str], ast.AST | None] = {}
        self._within: dict[Flow, set[str]] = {}

    def at(self, point: Point, place: Place, but: ast.AST | None = None) -> ast.AST | None:
        """Return what changes a place at a point, other than the node `but`."""
        if place.parameters:
            return self._trained(point, place.path)
        for node, item in self._by_path(point).get(place.path, ()):
            if node is not but and not (item and place.indexed) and not self._facts.is_guarded(node):
                return node
        return None

    def within(self, flow: Flow, place: Place) -> bool:
        """Return whether a place may be changed anywhere in a flow."""
        if place.parameters:
            return any(self.at(point, place) for point in flow.points)
        if flow not in self._within:
            self._within[flow] = {path for point in flow.points for path in self._by_path(point)}
        return place.path in self._within[flow]

    def _by_path(self, point: Point) -> dict[str, list[tuple[ast.AST, bool]]]:
        """Return what changes a place at a point, by the path of that place."""
        if point not in self._changing:
            found = self._changing[point] = {}
            for node in point.nodes:
                if isinstance(node, _CHANGING):
                    for changed, item in self._effects.of(node):
                        found.setdefault(changed.path, []).append((node, item))
        return self._changing[point]

    def _trained(self, point: Point, model: str) -> ast.AST | None:
        """Return what changes the parameters of a model at a point."""
        key = point, model
        if key not in self._training_at:
            found = (node for node in point.nodes if self._training.changes(node, model))
            self._training_at[key] = next(found, None)
        return self._training_at[key]


def changes_numbers(method: str) -> bool:
    """Return whether a tensor's method of this name changes the numbers in it."""
    return in_place(method) and method not in _HARMLESS


class _Effects:
    """What nodes change in place, also through the functions of the module that they call.

    Of a method, also what the functions change that it calls; calls are not followed further than that.
    """

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._facts = bodies.facts

    def of(self, node: ast.AST) -> Iterator[Change]:
        """Return what a node changes."""
        yield from self._with_functions(node)
        yield from self._by_method(node)

    def _with_functions(self, node: ast.AST) -> Iterator[Change]:
        yield from _direct(self._facts, node)
        yield from self._by_function(node)

    def _by_function(self, node: ast.AST) -> Iterator[Change]:
        """Return the arguments that are changed by the function of the module that a call calls."""
        if isinstance(node, ast.Call):
            for index in self._changed_parameters.get(last_name(node.func), ()):
                if index < len(node.args):
                    yield from _whole(self._facts, node.args[index], False)

    def _by_method(self, node: ast.AST) -> Iterator[Change]:
        """Return what is changed by a method that is called on `self`."""
        match node:
            case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id="self"))):
                for path in self._changed_attributes.get(name, ()):
                    yield Change(Place(path), False)

    @cached_property
    def _changed_parameters(self) -> dict[str, tuple[int, ...]]:
        """Return which of its parameters a function of the module changes, by the function's name."""
        found: dict[str, tuple[int, ...]] = {}
        for function in self._bodies.functions:
            if not self._bodies.is_method(function):
                names = positional_names(function)
                changed = self._changed_in(function, lambda node: _direct(self._facts, node))
                indexes = tuple(index for index, name in enumerate(names) if name in changed)
                if indexes:
                    found[function.name] = indexes
        return found

    @cached_property
    def _changed_attributes(self) -> dict[str, frozenset[str]]:
        """Return which attributes of `self` a method changes, by the method's name."""
        found: dict[str, frozenset[str]] = {}
        for function in self._bodies.functions:
            if self._bodies.is_method(function):
                changed = self._changed_in(function, self._with_functions)
                paths = frozenset(path for path in changed if path.startswith("self."))
                if paths:
                    found[function.name] = found.get(function.name, frozenset()) | paths
        return found

    def _changed_in(self, function: Function, changes: Callable[[ast.AST], Iterator[Change]]) -> set[str]:
        """Return the paths that a function changes and does not bind."""
        points = self._bodies.flow(function).points
        found = {
            place.path
            for point in points
            for node in point.nodes
            if isinstance(node, _CHANGING)
            for place, item in changes(node)
            if not item
        }
        return found.difference(*(point.bound for point in points)) if found else found


def _direct(facts: Facts, node: ast.AST) -> Iterator[Change]:
    """Return what a node changes itself."""
    match node:
        case ast.AugAssign(target=target, value=value):
            if not isinstance(value, (ast.List, ast.Tuple, ast.ListComp, ast.JoinedStr)):
                yield from _whole(facts, target, isinstance(target, ast.Subscript))
        case ast.Subscript(ctx=ast.Store(), value=value) if not constant_key(node):
            yield from _whole(facts, value, not isinstance(node.slice, (ast.Slice, ast.Tuple)))
        case ast.Call(func=function):
            if isinstance(function, ast.Attribute):
                if changes_numbers(function.attr) or function.attr in _NUMPY_CHANGES:
                    yield from _whole(facts, function.value, False)
            yield from _arguments(facts, node)


def _arguments(facts: Facts, node: ast.Call) -> Iterator[Change]:
    """Return what a call changes of its arguments, if it is one of a library."""
    out = keyword(node, "out")
    if out is not None:
        yield from _whole(facts, out, False)
    if node.args:
        name = facts.resolve(node.func) or dotted(node.func) or ""
        inplace = keyword(node, "inplace")
        if _FIRST_ARGUMENT.fullmatch(name) or (
            isinstance(inplace, ast.Constant) and inplace.value is True and name.startswith("torch.")
        ):
            yield from _whole(facts, node.args[0], False)


def _whole(facts: Facts, node: ast.expr, item: bool) -> Iterator[Change]:
    if isinstance(node, ast.Subscript) and not constant_key(node):
        node = without_index(node)
    place = place_of(facts, node)
    if place is not None:
        yield Change(place, item)
