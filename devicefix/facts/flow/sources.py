"""Follow a value backwards: from an expression to those that it gets its value from, within a module."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Flag, auto
from itertools import islice

from devicefix.facts.flow.kinds.calls import results
from devicefix.facts.flow.kinds.objects import put_into
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.parameters import Parameter, described
from devicefix.facts.flow.reaching import BINDINGS, reaching
from devicefix.facts.module import Facts
from devicefix.facts.names import option_names
from devicefix.facts.scopes import Binding, Function
from devicefix.facts.values import cpu, cuda_device, last_name

_CALLS = 20  # of one function
_BUDGET = 500  # expressions that one question looks at
_OF_ITEMS = ("items", "values", "keys")
_OF_ELEMENTS = ("enumerate", "zip", "list", "tuple", "sorted", "reversed", "next", "iter")


class How(Flag):
    """How an expression gets its value from another one."""

    BOUND = auto()  # a name or attribute is bound to it
    PASSED = auto()  # a call of the module passes it for a parameter
    DEFAULT = auto()  # it is the default of a parameter
    OPTION = auto()  # it is the default of an option of the command line
    RETURNED = auto()  # a function of the module returns it
    CHOICE = auto()  # it is one of several values
    PART = auto()  # it holds the value: in an attribute, or under a key
    ELEMENT = auto()  # it holds the value among others
    ITEM = auto()  # it is such a value, of a display or a comprehension, or put into a collection
    ARGUMENT = auto()  # a call makes the value of it
    NAMED = auto()  # it is the device of which the value is the type or the name


@dataclass(frozen=True, slots=True)
class Source:
    """An expression on the way from a value back to where it comes from.

    Attributes:
        node: the expression.
        steps: how many steps may follow.
        previous: the expression before; None for the first one.
        several: whether the value before may also come from elsewhere.
    """

    node: ast.expr
    steps: int
    previous: Source | None = None
    several: bool = False

    def way(self) -> Iterator[Source]:
        """Yield this expression, and those before it."""
        step: Source | None = self
        while step is not None:
            yield step
            step = step.previous


class Sources:
    """The sources of the values of one module.

    Args:
        facts: the facts of the module.
        how: the steps to take.
        steps: how many of them at most.
        only_cuda: whether to follow what only runs with CUDA, too.
    """

    def __init__(self, facts: Facts, how: How, steps: int, *, only_cuda: bool = True) -> None:
        self._facts = facts
        self._how = how
        self._steps = steps
        self._only_cuda = only_cuda
        self._dead: dict[ast.expr, int] = {}  # the steps behind an expression that lead to nothing sought

    def of(self, node: ast.expr) -> Iterator[Source]:
        """Yield an expression and its sources, the nearest first."""
        first = Source(node, self._steps)
        found, todo = {node: first}, deque([first])
        while todo and len(found) < _BUDGET:
            source = todo.popleft()
            yield source
            before = list(self._before(source.node)) if source.steps else []
            for each in before:
                if each not in found and self._dead.get(each, -1) < source.steps - 1:
                    found[each] = Source(each, source.steps - 1, source, len(before) > 1)
                    todo.append(found[each])

    def ends(self, node: ast.expr) -> list[ast.expr]:
        """Return the sources of an expression that have no further ones."""
        way = list(self.of(node))
        before = {source.previous.node for source in way if source.previous is not None}
        return [source.node for source in way if source.node not in before]

    def first(self, node: ast.expr, wanted: Callable[[ast.expr], bool]) -> Source | None:
        """Return the nearest source of an expression that is wanted; always the same is sought."""
        seen = []
        for source in self.of(node):
            if wanted(source.node):
                return source
            seen.append(source)
        for source in seen:
            self._dead[source.node] = max(source.steps, self._dead.get(source.node, -1))
        return None

    def parameter(self, node: ast.expr) -> tuple[Function, Binding] | None:
        """Return the function and the parameter that a name is there, None if it may be something else."""
        scope, bindings = self._facts.tree.lookup(node) or (None, ())
        match reaching(self._facts.tree, node, bindings):
            case [Binding(parameter=True) as parameter] if scope and isinstance(scope.node, Function):
                return scope.node, parameter
        return None

    def parameters(self, values: Iterable[ast.expr]) -> frozenset[Parameter]:
        """Return the parameters of functions that some expressions may get their values from."""
        found, tree = set(), self._facts.tree
        nodes = (source.node for value in values for source in self.of(value))
        for name in (node for node in nodes if isinstance(node, ast.Name)):
            scope, bindings = tree.lookup(name) or (None, ())
            if scope is not None and isinstance(scope.node, Function):
                if any(binding.parameter for binding in bindings):
                    found.add(described(tree, scope.node, name.id))
        return frozenset(found)

    def _before(self, node: ast.expr) -> Iterator[ast.expr]:
        """Yield the expressions that one gets its value from in one step."""
        match node:
            case ast.Attribute(attr="type", value=device) if How.NAMED in self._how:
                yield device
            case ast.Name() | ast.Attribute():
                yield from self._of_path(node)
            case ast.IfExp(test=test, body=body, orelse=orelse) if How.CHOICE in self._how:
                arms = ((body, True), (orelse, False))
                yield from (arm for arm, truth in arms if self._runs_on_test(test, truth))
            case ast.BoolOp(values=values) if How.CHOICE in self._how:
                yield from values
            case ast.NamedExpr(value=value) | ast.Await(value=value):
                yield value
            case ast.Subscript(value=whole, slice=index):
                is_key = isinstance(index, ast.Constant) and isinstance(index.value, str)
                if How.PART in self._how or (How.ELEMENT in self._how and not is_key):
                    yield whole
            case ast.Call():
                yield from self._of_call(node)
            case _ if How.ITEM in self._how:
                yield from getattr(node, "elts", ()) or filter(None, [getattr(node, "elt", None)])

    def _of_path(self, node: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
        parameter = self.parameter(node)
        if parameter is not None:
            yield from self._of_parameter(*parameter)
            return
        bindings = reaching(self._facts.tree, node, self._facts.bindings(node))[:BINDINGS]
        for binding in bindings:
            if self._runs(binding.node):
                if binding.value is not None and How.BOUND in self._how:
                    yield binding.value
                elif How.ELEMENT in self._how:
                    yield from _iterated(binding)
        if How.ITEM in self._how:
            yield from put_into(self._facts, node)
        if isinstance(node, ast.Attribute) and not bindings:
            if How.PART in self._how:
                yield node.value
            if How.OPTION in self._how and isinstance(node.value, ast.Name):
                yield from self._of_option(node.attr)

    def _of_parameter(self, function: Function, parameter: Binding) -> Iterator[ast.expr]:
        if parameter.default is not None and How.DEFAULT in self._how:
            yield parameter.default
        if How.PASSED in self._how and isinstance(parameter.node, ast.arg):
            yield from self._passed(function, parameter.node)

    def _passed(self, function: Function, parameter: ast.arg) -> Iterator[ast.expr]:
        name, (_, place) = described(self._facts.tree, function, parameter.arg)
        calls = (each for each in self._facts.tree.calls_with_name(name) if last_name(each.func) == name)
        for call in islice(calls, _CALLS):
            value = argument_of(call, parameter.arg, place)
            if value is not None and self._runs(call):
                yield value

    def _of_option(self, name: str) -> Iterator[ast.expr]:
        for call in self._facts.tree.nodes_with("add_argument"):
            if isinstance(call, ast.Call) and name in option_names(call):
                yield from (each.value for each in call.keywords if each.arg in ("default", "const"))

    def _of_call(self, call: ast.Call) -> Iterator[ast.expr]:
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        name = last_name(call.func)
        own = self._facts.guards.refusals.own_function(call.func)
        is_device = self._facts.call(call, "torch.device")
        is_known = cpu(self._facts, call) or cuda_device(self._facts, call)
        if How.NAMED in self._how and (name == "str" or (is_device and not is_known)):
            yield from call.args[:1]
        if (owner is not None and name == "get" and How.PART in self._how) or (
            owner is not None and name in _OF_ITEMS and How.ELEMENT in self._how
        ):
            yield owner
        elif owner is None and name in _OF_ELEMENTS and How.ELEMENT in self._how:
            yield from call.args
        elif own is not None and How.RETURNED in self._how:
            yield from self._facts.once(results, self._facts.tree.scopes[own])[0]
        elif How.ARGUMENT in self._how and not is_device:
            passed = (*call.args, *(keyword.value for keyword in call.keywords))
            yield from (each.value if isinstance(each, ast.Starred) else each for each in passed)

    def _runs(self, node: ast.AST) -> bool:
        """Return whether a node counts: it does not only run with CUDA, if that is left out."""
        return self._only_cuda or not self._facts.is_guarded(node)

    def _runs_on_test(self, test: ast.expr, truth: bool) -> bool:
        return self._only_cuda or not self._facts.guards.implies(test, truth)


def _iterated(binding: Binding) -> Iterator[ast.expr]:
    """Yield what a loop takes the value of a name from, or an assignment that unpacks it."""
    match binding.node:
        case ast.For(iter=iterated) | ast.AsyncFor(iter=iterated) | ast.comprehension(iter=iterated):
            yield iterated
        case ast.Assign(value=value):
            yield value
