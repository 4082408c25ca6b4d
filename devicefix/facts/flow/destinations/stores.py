"""Follow a value through the variables, attributes and keys that it is stored in."""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import Flag, auto
from itertools import islice

from devicefix.facts.flow.steps import Layers, Steps
from devicefix.facts.scopes import Scope
from devicefix.facts.values import last_name

STEPS = 400  # how many expressions to follow a value through, so that the time is linear
_DEPTH = 3  # how many containers around it
_NEEDS_CUDA = re.compile(
    r"""\.cuda\s*\(|\btorch\.cuda\.(?!is_available|device_count)|(\.to\(|\bdevice\s*=)\s*["']cuda"""
)


SHOWS = {
    "print", "debug", "info", "warning", "error", "critical", "exception", "log", "write", "echo", "len",
    "bool", "repr", "type", "isinstance", "hasattr", "startswith", "endswith",
}  # fmt: skip


class Use(Flag):
    """The uses of a value."""

    NOTHING = 0
    DEVICE = auto()  # it is taken for a device somewhere
    SHOWN = auto()  # it is compared or printed
    NUMBERED = auto()  # it gets a number: `torch.device(name, 1)`
    UNPACKED = auto()  # a function of torch, or `to`, gets it among the options of a dictionary
    REFUSED = auto()  # with it, the program ends without CUDA
    OF_CUDA = auto()  # a call with a fix of its own takes it: of torch.cuda, or one that loads
    UNKNOWN = auto()  # it leaves the module, or is used in a way that is not known


class Stores(ABC):
    """The places that one value reaches.

    Args:
        steps: the steps of the values of the module.
        known: what becomes of a value in a place that many may be stored in, by what is around it there.
        nested: whether it is a part of another trail.
    """

    def __init__(
        self, steps: Steps, known: dict[tuple[object, Layers], Use], *, nested: bool = False
    ) -> None:
        self.steps = steps
        self.facts = steps.facts
        self.tree = steps.tree
        self.others = steps.facts.others
        self.known = known
        self.use = Use.NOTHING
        self._nested = nested
        self._seen: set[tuple[object, Layers]] = set()
        self._todo: list[tuple[ast.expr, Layers]] = []

    def follow(self, node: ast.expr, layers: Layers) -> Use:
        """Follow the value of an expression."""
        self._reach(node, layers)
        return self._finish()

    def follow_all(self, nodes: Iterable[ast.expr], layers: Layers) -> Use:
        """Follow the value of any of some expressions."""
        for node in islice(nodes, STEPS):
            self._reach(node, layers)
        return self._finish()

    def _finish(self) -> Use:
        while self._todo and Use.DEVICE not in self.use:
            if len(self._seen) > 2 * STEPS:
                self.use |= Use.UNKNOWN
                break
            self._step(*self._todo.pop())
        return self.use

    def _reach(self, node: ast.expr, layers: Layers) -> None:
        """Follow the value on from an expression that has it, or a container of it."""
        if len(layers) > _DEPTH:
            self.use |= Use.UNKNOWN
        elif (node, layers) not in self._seen:
            self._seen.add((node, layers))
            self._todo.append((node, layers))

    def _reach_place(self, place: object, reads: Iterable[ast.expr], layers: Layers) -> None:
        """Follow the value on from a place that many values may be stored in, such as an attribute."""
        if (place, layers) not in self.known and not self._nested:
            trail = type(self)(self.steps, self.known, nested=True)
            self.known[place, layers] = trail.follow_all(reads, layers)
        if (place, layers) in self.known:
            self.use |= self.known[place, layers]
        elif (place, layers) not in self._seen:
            self._seen.add((place, layers))
            for node in islice(reads, STEPS):
                self._reach(node, layers)

    @abstractmethod
    def _step(self, node: ast.expr, layers: Layers) -> None:
        """Follow the value on from an expression."""

    def _store(self, target: ast.expr, layers: Layers) -> None:
        match target:
            case ast.Name(id=name):
                found = self.tree.scope(target).lookup(name)
                if found is not None:
                    self._name(found[0], name, layers)
            case ast.Attribute(attr=name, value=owner):
                self._attribute(name, layers, shared=not self._is_mock(owner))
            case ast.Subscript(slice=ast.Constant(value=str(key))):
                self._key(key, layers)
            case ast.Subscript(value=container):
                self._store(container, ("", *layers))
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                place = layers[0] if layers else ""
                starred = any(isinstance(element, ast.Starred) for element in elements)
                chosen = elements[int(place) :][:1] if place.isdigit() and not starred else elements
                for element in chosen:
                    self._store(element, layers[1:])
            case ast.Starred(value=inner):
                self._store(inner, ("", *layers))
            case _:
                self.use |= Use.UNKNOWN

    def _name(self, scope: Scope, name: str, layers: Layers) -> None:
        """Follow a value that a name of a scope is bound to."""
        if scope.is_class:
            self._attribute(name, layers)
        elif scope.is_module:
            self._leave(
                name,
                self.others.is_device_place(name) and self.others.is_imported(),
            )
        self._reach_place((scope, name), self.facts.reads_in(scope, name), layers)

    def _attribute(self, name: str, layers: Layers, *, shared: bool = True) -> None:
        """Follow a value that is stored in an attribute, of any object of the module."""
        self._leave(name, shared)
        self._reach_place(("attribute", name), self.steps.attribute_reads(name), layers)

    def _key(self, key: str, layers: Layers) -> None:
        """Follow a value that is stored under a key, or in an option."""
        self._reach_place(("key", key), self.steps.key_reads(key), layers)
        self._attribute(key, layers)

    def _leave(self, name: str, shared: bool = True) -> None:
        """Follow a value to the other files, which may read it by a name if it is shared."""
        known = shared and self.others.is_device_place(name)
        self.use |= Use.DEVICE if known else Use.UNKNOWN

    def _is_mock(self, node: ast.expr) -> bool:
        """Return whether an object is a mock, whose attributes few others read, whatever their names.

        https://docs.python.org/3/library/unittest.mock.html
        """
        values = [binding.value for binding in self.facts.bindings(node)]
        return bool(values) and all(
            isinstance(value, ast.Call) and last_name(value.func).endswith("Mock") for value in values
        )

    def _compared(self, node: ast.AST) -> None:
        """Follow a value into a test: what runs only if it is true may need CUDA."""
        self.use |= Use.SHOWN
        for child, parent in self.tree.ancestors(node):
            if isinstance(parent, ast.If) and child is parent.test:
                code = "".join(map(self.facts.source.code, parent.body))
                if isinstance(parent.test, ast.BoolOp) and any(
                    self.facts.guards.implies(value, False) for value in parent.test.values
                ):
                    self.use |= Use.UNKNOWN  # of an `if` that is also about the lack of CUDA
                    if self.facts.guards.refusals.refuses(parent.body):
                        self.use |= Use.REFUSED
                elif any(map(self._refuses, parent.body)):
                    self.use |= Use.REFUSED
            elif isinstance(parent, ast.IfExp) and child is parent.test:
                code = self.facts.source.code(parent.body)
            elif isinstance(parent, ast.stmt):
                return
            else:
                continue
            if _NEEDS_CUDA.search(code):
                self.use |= Use.DEVICE
            return

    def _refuses(self, statement: ast.stmt) -> bool:
        """Return whether a statement ends the program without CUDA."""
        match statement:
            case ast.If():
                return self.facts.guards.refusal(statement) is not None
            case ast.Assert(test=test):
                return bool(self.facts.guards.settled(test))
        return False
