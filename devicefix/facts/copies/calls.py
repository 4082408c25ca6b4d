"""The calls of a module's own functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from devicefix.facts.copies.bodies import Bodies, Function, positional_names
from devicefix.facts.copies.expressions import keyword
from devicefix.facts.flow.order import Flow, Point
from devicefix.facts.values import last_name


class Calls:
    """The calls of a module, by the name of what is called.

    Args:
        bodies: the bodies of the module.
    """

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._facts = bodies.facts

    def of(self, function: Function, parameter: str) -> Iterator[tuple[Flow, Point, ast.expr]]:
        """Return the calls of a function that pass a parameter, with the points and the arguments."""
        owner = self._facts.tree.parents.get(function)
        names = [name for name in positional_names(function) if name != self._bodies.receiver(function)]
        for flow, point, call in self._by_name.get(function.name, ()):
            if self._bodies.is_method(function) == isinstance(call.func, ast.Attribute):
                yield from _argument(flow, point, call, names, parameter)
        if isinstance(owner, ast.ClassDef):
            yield from self._of_object(function, owner, names, parameter)

    def _of_object(
        self, function: Function, owner: ast.ClassDef, names: list[str], parameter: str
    ) -> Iterator[tuple[Flow, Point, ast.expr]]:
        """Return the calls of a class, which run `__init__`, or of its objects, which run `forward`."""
        if function.name == "__init__":
            for flow, point, call in self._by_name.get(owner.name, ()):
                yield from _argument(flow, point, call, names, parameter)
        elif function.name in ("forward", "__call__"):
            for flow, point, call in self._all:
                if self._makes(call.func, owner.name):
                    yield from _argument(flow, point, call, names, parameter)

    def _makes(self, node: ast.expr, name: str) -> bool:
        """Return whether an expression is an object of a class of the module, such as `Net().to(device)`."""
        value = self._facts.value(node) if isinstance(node, (ast.Name, ast.Attribute)) else node
        while isinstance(value, ast.Call):
            if last_name(value.func) == name:
                return True
            value = value.func.value if isinstance(value.func, ast.Attribute) else None
        return False

    @cached_property
    def _all(self) -> list[tuple[Flow, Point, ast.Call]]:
        return [
            (flow, point, node)
            for flow in map(self._bodies.flow, self._bodies.owners)
            for point in flow.points
            for node in point.nodes
            if isinstance(node, ast.Call)
        ]

    @cached_property
    def _by_name(self) -> dict[str, list[tuple[Flow, Point, ast.Call]]]:
        found: dict[str, list[tuple[Flow, Point, ast.Call]]] = {}
        for each in self._all:
            found.setdefault(last_name(each[2].func), []).append(each)
        return found


def _argument(
    flow: Flow, point: Point, call: ast.Call, names: list[str], parameter: str
) -> Iterator[tuple[Flow, Point, ast.expr]]:
    """Return a call with the argument that it passes for a parameter, if it passes one."""
    given = keyword(call, parameter)
    if given is None and parameter in names and names.index(parameter) < len(call.args):
        given = call.args[names.index(parameter)]
    if given is not None and not isinstance(given, ast.Starred):
        yield flow, point, given
