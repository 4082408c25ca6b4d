"""Expressions that are copies on a GPU only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from devicefix.facts.copies.bodies import Bodies, Function, positional_names
from devicefix.facts.copies.dtypes import unconverted
from devicefix.facts.copies.expressions import keyword, root, viewed, viewed_all
from devicefix.facts.copies.inside import bound_inside, contents
from devicefix.facts.copies.leaves import is_trained
from devicefix.facts.copies.moves import already_there, is_tensor, makes_tensor, moved, moves
from devicefix.facts.copies.places import Place, parameters_of, place_of, places_of
from devicefix.facts.flow.kinds.library import OF_TENSORS, SAME
from devicefix.facts.flow.order import path_of
from devicefix.facts.module import Facts
from devicefix.facts.values import last_name

_MOVES = re.compile(r"\.(?:cpu|cuda|to)\s*\(")
_MANY = 100  # expressions that one may be a view of


@dataclass(frozen=True, slots=True)
class Copy:
    """An expression that is a copy on a GPU, and what it was made of on a CPU.

    Attributes:
        call: the call that copies.
        outer: the expression around it that is a view of it.
        places: what is copied, and what that is a part of.
        moved: whether it is moved before that, as in `x.cuda().cpu()`.
    """

    call: ast.Call
    outer: ast.expr
    places: tuple[Place, ...]
    moved: bool = False

    @property
    def source(self) -> Place:
        """The place that is copied."""
        return self.places[0]


class Copies:
    """The copies of a module, also those that its functions return.

    Args:
        bodies: the bodies of the module.
    """

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._facts = bodies.facts

    def of(self, expression: ast.expr) -> Copy | None:
        """Return the copy that an expression is, or is a view of."""
        node: ast.expr | None = expression
        while node is not None:
            if isinstance(node, ast.Call) and last_name(node.func) in self.returning:
                return self._returned(node)
            node = viewed(node)
        return _written_out(self._facts, expression)

    @cached_property
    def returning(self) -> dict[str, tuple[str, Copy, Function | ast.Lambda]]:
        """Return the functions that return a copy of a parameter or a model's parameters, with its name."""
        found: dict[str, tuple[str, Copy, Function | ast.Lambda]] = {}
        for called, function, value in self._results():
            names = positional_names(function)
            lines = range(value.lineno, (value.end_lineno or value.lineno) + 1)
            if (
                not names
                or self._moving.isdisjoint(lines)
                or not _MOVES.search(self._facts.source.code(value))
            ):
                continue
            for expression in contents(self._facts, value):
                copy = _written_out(self._facts, expression)
                if copy and any(self._is_returned(function, names, each) for each in copy.places):
                    found[called] = root(copy.source.path), copy, function
        return found

    def _results(self) -> Iterator[tuple[str, Function | ast.Lambda, ast.expr]]:
        """Yield the functions, and the lambdas that names are bound to, each with its name and its result."""
        for function in self._bodies.functions:
            last = function.body[-1]
            if isinstance(last, ast.Return) and last.value is not None:
                yield function.name, function, last.value
        for node in self._facts.tree.nodes_with("lambda"):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as made):
                    yield name, made, made.body

    @cached_property
    def _moving(self) -> frozenset[int]:
        """Return the lines that hold a move."""
        source = self._facts.source
        return frozenset(source.position(found.start())[0] for found in _MOVES.finditer(source.text))

    def _is_returned(self, function: Function | ast.Lambda, names: list[str], place: Place) -> bool:
        """Return whether a place that a function returns a copy of is its parameter, or those of a model."""
        if place.parameters:
            return root(place.path) == names[0]
        if isinstance(function, ast.Lambda):
            return place.path in names
        bindings = self._facts.tree.scopes[function].bindings.get(place.path, ())
        of_torch = self._bodies.is_method(function) and function.name in SAME | OF_TENSORS
        return place.path in names and len(bindings) == 1 and not of_torch

    def _returned(self, call: ast.Call) -> Copy | None:
        """Return the copy of its argument that a call of the module's own function returns."""
        name, copy, function = self.returning[last_name(call.func)]
        given: ast.expr | None = None
        is_method = not isinstance(function, ast.Lambda) and self._bodies.is_method(function)
        if name == "self" and isinstance(call.func, ast.Attribute):
            given = call.func.value
        elif copy.source.parameters or is_method is isinstance(call.func, ast.Attribute):
            given = self._argument(call, function, name)
        place = place_of(self._facts, given) if given is not None else None
        if place is None:
            return None
        places = tuple(
            replace(each, path=place.path + each.path.removeprefix(name))
            for each in copy.places
            if root(each.path) == name
        )
        return Copy(copy.call, copy.outer, places, copy.moved) if places else None

    def _argument(self, call: ast.Call, function: Function | ast.Lambda, name: str) -> ast.expr | None:
        """Return what a call of a function passes for a parameter."""
        receiver = None if isinstance(function, ast.Lambda) else self._bodies.receiver(function)
        names = [each for each in positional_names(function) if each != receiver]
        index = names.index(name) if name in names else len(call.args)
        return call.args[index] if index < len(call.args) else keyword(call, name)


def _written_out(facts: Facts, outer: ast.expr) -> Copy | None:
    """Return the copy that an expression is, or is a view of; calls are not followed."""
    if isinstance(outer, ast.Call) and last_name(outer.func) == "state_dict":
        return _state_on_cpu(outer)
    call = move_inside(facts, outer)
    if call is None:
        return None
    base = moved(facts, call)
    if already_there(facts, call, base):
        return None
    places = tuple(places_of(facts, base))
    if makes_tensor(facts, call) and not is_tensor(facts, base):
        places = tuple(replace(place, buffer=True) for place in places)
    if places and is_trained(facts, _viewed_by(base)):
        places = (replace(places[0], trained=True), *places[1:])
    return Copy(call, outer, places, move_inside(facts, base) is not None) if places else None


def _viewed_by(node: ast.expr) -> ast.expr:
    """Return the innermost expression that an expression is a view of."""
    while (inner := viewed(node)) is not None:
        node = inner
    return node


def move_inside(facts: Facts, node: ast.expr) -> ast.Call | None:
    """Return the move that an expression is, or is a view of."""
    todo, seen = [node], 0
    while todo and (seen := seen + 1) < _MANY:
        node = todo.pop()
        if isinstance(node, ast.Call) and moves(facts, node):
            return node
        inner = viewed_all(node) or bound_inside(facts, node)
        if inner is None:
            same = unconverted(facts, node)
            inner = [] if same is None else [same]
        todo += reversed(inner)
    return None


def _state_on_cpu(outer: ast.Call) -> Copy | None:
    """Return the copy that `model.cpu().state_dict()` is: its tensors stay on the CPU."""
    call = outer.func.value if isinstance(outer.func, ast.Attribute) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "cpu":
        return None
    path = path_of(call.func.value)
    return Copy(call, outer, (parameters_of(path),)) if path else None
