"""Follow a value through the variables, attributes and keys that hold it."""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from itertools import islice

from devicefix.facts.flow.steps import Layers, Steps, Variable
from devicefix.facts.hugging_face import takes_attention
from devicefix.facts.path_conditions import conditions_around
from devicefix.facts.scopes import Scope
from devicefix.facts.values import device_name, devices_name, last_name

_READS = 400  # of one place, to follow a value through
_BUDGET = 2 * _READS  # how many expressions and places to follow it through, so that the time is linear
_BINDINGS = 20  # of a variable; its reads have other values, too
_DEPTH = 3  # how many containers around a value
_NEEDS_CUDA = re.compile(
    r"""\.cuda\s*\(|\btorch\.cuda\.(?!is_available|device_count)|(\.to\(|\bdevice\s*=)\s*["']cuda"""
)


class Use(Flag):
    """The uses of a value."""

    NOTHING = 0
    DEVICE = auto()  # it is taken for a device somewhere
    SHOWN = auto()  # it is compared or printed
    NUMBERED = auto()  # it gets a number: `torch.device(name, 1)`
    REFUSED = auto()  # with it, the program ends without CUDA
    OF_CUDA = auto()  # a call with a fix of its own takes it: of torch.cuda, or one that loads
    NAMED = auto()  # a variable, parameter, key or option holds it that has the name of a device
    UNKNOWN = auto()  # it leaves the module, or is used in a way that is not known
    INDEXED = auto()  # the number of the device is taken out of it, which the CPU does not have
    CPU_REFUSED = auto()  # the program ends where it is the CPU
    COMPARED = auto()  # it is compared with an int
    BACKEND = auto()  # a process group is made with it
    COUNTED = auto()  # it is used as a number: in arithmetic, or as an index
    ORDERED = auto()  # it is compared, or becomes an int, as `nan` can't
    DIVISOR = auto()  # it divides something
    ATTENTION = auto()  # it names the implementation of attention of a model
    TOLD_APART = auto()  # it is told apart from a value of another name
    SETTLED = auto()  # where it is taken for a device, a guard or a fix makes the number of a GPU the CPU
    DEMANDED = auto()  # the program ends, or a loop doesn't, unless it is more than 0
    ONLY_DEVICE = auto()  # it is taken for a device, and is nothing else
    CHOSEN = auto()  # it is so, and may be the CPU, or chosen at run time


@dataclass(slots=True)
class Followed:
    """The ends of the way of a value.

    Attributes:
        use: what takes the value there.
        uses: the expressions that hold the value where it is used, and not only bound to a name. An argument
            and a returned value are uses, also if the function is known and the value is followed beyond.
        passed: those of them from which the value is followed into a function, or out of it.
        variables: the names and attributes that hold the value on the way.
        parameters: those of them that are parameters, to which other callers may pass other values.
    """

    use: Use = Use.NOTHING
    uses: list[ast.expr] = field(default_factory=list)
    passed: set[ast.expr] = field(default_factory=set)
    variables: list[Variable] = field(default_factory=list)
    parameters: list[Variable] = field(default_factory=list)


Known = dict[tuple[object, Layers], Use]


class Trail(ABC):
    """The way of one value.

    A walk of the steps that certainly lead on collects the uses and the holders of the value: what it does
    not follow is a use. A walk of all steps that may lead on, also through containers and to every function
    of a name, adds up what takes the value: what it can't follow is unknown.

    Args:
        steps: the steps of the values of the module.
        known: what becomes of a value in a place that many may be stored in, by what is around it there.
        certain: whether to take only the steps that certainly lead on.
        nested: whether it is a part of another trail.
    """

    def __init__(self, steps: Steps, known: Known, *, certain: bool = False, nested: bool = False) -> None:
        self.steps = steps
        self.facts = steps.facts
        self.tree = steps.tree
        self.others = steps.facts.others
        self.certain = certain
        self.found = Followed()
        self._known = known
        self._nested = nested
        self._seen: set[tuple[object, Layers]] = set()
        self._todo: list[tuple[ast.expr, Layers, ast.expr | None]] = []
        self._value: ast.expr | None = None  # the last expression that had the value itself, not a container

    def follow(self, nodes: Iterable[ast.expr], layers: Layers = ()) -> Followed:
        """Follow the value of any of some expressions."""
        for node in islice(nodes, _READS):
            self._reach(node, layers)
        return self._finish()

    def _finish(self) -> Followed:
        while self._todo and Use.DEVICE not in self.found.use:
            node, layers, self._value = self._todo.pop()
            if len(self._seen) > _BUDGET:
                self._end()
            else:
                self._step(node, layers)
        return self.found

    @abstractmethod
    def _step(self, node: ast.expr, layers: Layers) -> None:
        """Follow the value on from an expression."""

    def _end(self, use: Use = Use.UNKNOWN) -> None:
        """Add an end of the way: what takes the value there."""
        if not self.certain:
            self.found.use |= use
        elif self._value is not None and self._value not in self.found.uses[-1:]:
            self.found.uses.append(self._value)

    def _reach(self, node: ast.expr, layers: Layers) -> None:
        """Follow the value on from an expression that has it, or a container of it."""
        if len(layers) > _DEPTH:
            self._end()
        elif (node, layers) not in self._seen:
            if self.steps.zero and (self._seen or self._nested) and self.facts.is_guarded(node):
                return
            self._seen.add((node, layers))
            self._todo.append((node, layers, self._value if layers else node))

    def _reach_place(self, place: object, reads: Iterable[ast.expr], layers: Layers) -> None:
        """Follow the value on from a place that many values may be stored in, such as an attribute."""
        if (place, layers) not in self._known and not self._nested:
            trail = type(self)(self.steps, self._known, nested=True)
            self._known[place, layers] = trail.follow(reads, layers).use
        if (place, layers) in self._known:
            self._end(self._known[place, layers])
        elif (place, layers) not in self._seen:
            self._seen.add((place, layers))
            for node in islice(reads, _READS):
                self._reach(node, layers)

    def _hold(self, variable: Variable, holders: list[Variable], layers: Layers = ()) -> None:
        """Follow the value on from a variable that certainly holds it."""
        if layers:
            self._end()
        elif variable not in holders:
            holders.append(variable)
            for read in variable.reads if len(variable.bindings) <= _BINDINGS else ():
                self._reach(read, ())

    def _store(  # noqa: C901 (one case a kind of target)
        self, target: ast.expr, layers: Layers, at: ast.AST | None = None
    ) -> None:
        """Follow a value that a target is bound to; a target that is no node of the tree is one at a node."""
        match target:
            case ast.Name(id=name):
                found = self.tree.scope(at or target).lookup(name)
                if found is not None:
                    self._name(found[0], name, layers, at or target)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                self._unpack(elements, layers)
            case ast.Attribute() if self.certain:
                self._hold(self.steps.attribute(target), self.found.variables, layers)
            case _ if self.certain:
                self._end()
            case ast.Attribute(attr=name, value=owner) if not self.steps.is_fixed(target):
                self._end(Use.ATTENTION if takes_attention(self.facts, owner, name) else Use.NOTHING)
                self._attribute(name, layers, shared=not self._is_mock(owner))
            case ast.Subscript(value=container, slice=ast.Constant(value=str(key))):
                self._key(key, layers)
                if isinstance(container, ast.Name):
                    self._store(container, (key, *layers))
            case ast.Subscript(value=container) | ast.Starred(value=container):
                self._store(container, ("", *layers))
            case _ if not isinstance(target, ast.Attribute):
                self._end()

    def _unpack(self, targets: Sequence[ast.expr], layers: Layers) -> None:
        """Follow a value to the targets that get it, or a part of it: all of them if that is not known."""
        place = layers[0] if layers else ""
        stars = any(isinstance(target, ast.Starred) for target in targets)
        known = place.removeprefix("-").isdigit() and not stars
        if self.certain and not known:
            self._end()
        if layers or not self.certain:
            for target in targets[int(place) :][:1] if known else targets:
                self._store(target, layers[1:])

    def _name(self, scope: Scope, name: str, layers: Layers, at: ast.AST | None = None) -> None:
        """Follow a value that a name of a scope is bound to, at a node."""
        if self.certain:
            self._hold(self.steps.name(scope, name), self.found.variables, layers)
            return
        self._name_holder(name, layers)
        if scope.is_class:
            self._attribute(name, layers)
        elif scope.is_module and not (at and self._is_of_program(at)):
            self._leave(name, self.others.is_device_place(name) and self.others.is_imported())
        self._reach_place((scope, name), self.facts.reads_in(scope, name), layers)

    def _is_of_program(self, node: ast.AST) -> bool:
        """Return whether code does not run where another file imports this one."""
        tests = conditions_around(self.tree, node)
        return any(truth and ast.unparse(test) == "__name__ == '__main__'" for test, truth in tests)

    def _attribute(self, name: str, layers: Layers, *, shared: bool = True) -> None:
        """Follow a value that is stored in an attribute, of any object of the module."""
        self._name_holder(name, layers)
        self._leave(name, shared)
        self._reach_place(("attribute", name), self.steps.attribute_reads(name), layers)

    def _key(self, key: str, layers: Layers) -> None:
        """Follow a value that is stored under a key, or in an option."""
        self._reach_place(("key", key), self.steps.key_reads(key), layers)
        self._attribute(key, layers)

    def _name_holder(self, name: str, layers: Layers) -> None:
        """Add what the name of a holder of the value, or of a container of it, says about it."""
        if device_name(name) or (layers and devices_name(name)):
            self._end(Use.NAMED)

    def _as_name(self) -> Use:
        """Return the use of a value by which something is found: what a variable finds by it is not known."""
        return Use.SHOWN if isinstance(self._value, (ast.Constant, ast.JoinedStr)) else Use.UNKNOWN

    def _leave(self, name: str, shared: bool = True) -> None:
        """Follow a value to the other files, which may read it by a name if it is shared."""
        known = shared and self.others.is_device_place(name)
        self._end(Use.DEVICE if known else Use.UNKNOWN)

    def _is_mock(self, node: ast.expr) -> bool:
        """Return whether an object is a mock, whose attributes few others read, whatever their names.

        https://docs.python.org/3/library/unittest.mock.html
        """
        values = [binding.value for binding in self.facts.bindings(node)]
        made = [last_name(value.func) if isinstance(value, ast.Call) else "" for value in values]
        return bool(made) and all(name.endswith("Mock") for name in made)

    def _compared(self, node: ast.AST) -> None:
        """Follow a value into a test: what runs only if it is true may need CUDA."""
        self._end(Use.SHOWN)
        for child, parent in self.tree.ancestors(node):
            if isinstance(parent, ast.If) and child is parent.test:
                code = "".join(map(self.facts.source.code, parent.body))
                if isinstance(parent.test, ast.BoolOp) and any(
                    self.facts.guards.implies(value, False) for value in parent.test.values
                ):
                    self._end()  # of an `if` that is also about the lack of CUDA
                    if self.facts.guards.refusals.refuses(parent.body):
                        self._end(Use.REFUSED)
                elif any(map(self._refuses, parent.body)):
                    self._end(Use.REFUSED)
            elif isinstance(parent, ast.IfExp) and child is parent.test:
                code = self.facts.source.code(parent.body)
            elif isinstance(parent, ast.stmt):
                return
            else:
                continue
            if _NEEDS_CUDA.search(code):
                self._end(Use.DEVICE)
            return

    def _refuses(self, statement: ast.stmt) -> bool:
        """Return whether a statement ends the program without CUDA."""
        match statement:
            case ast.If():
                return self.facts.guards.refusal(statement) is not None
            case ast.Assert(test=test):
                return bool(self.facts.guards.settled(test))
        return False
