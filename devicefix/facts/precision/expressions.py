"""Find the value of an expression, as far as types are known."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from devicefix.facts.flow.reaching import position, reaching
from devicefix.facts.module import Facts
from devicefix.facts.names import Names
from devicefix.facts.precision.conversions import Conversions, class_around
from devicefix.facts.precision.dtypes import Dtypes
from devicefix.facts.precision.tables import CASTING, EMBEDDINGS, NORMS, SAME_ATTRIBUTES
from devicefix.facts.precision.values import Given, Module, Tensor, Value, part_of, promoted
from devicefix.facts.scopes import Binding, Scope
from devicefix.facts.values import last_name

STEPS = 1000  # expressions that one answer may look at
_DEPTH = 40  # of names, attributes and calls
_CALLS = 20  # of one function in the module


class Expressions(ABC):
    """The values of expressions in one module.

    Args:
        facts: The module's names.
        is_mixing: Whether a call of an imported class's instances lets two types meet.
    """

    def __init__(self, facts: Facts, is_mixing: Callable[[str], bool] = lambda _: False) -> None:
        self._facts = facts
        self._tree = facts.tree
        self._is_mixing = is_mixing
        self._dtypes = Dtypes(facts)
        self._conversions = Conversions(facts, self._dtypes, self._attribute)
        self._steps = self._depth = 0
        self._found = False
        self._asked: set[object] = set()
        self._known: dict[tuple[ast.expr, int], tuple[Value | None, Given]] = {}
        self._reaching: dict[ast.Name, Sequence[Binding] | None] = {}

    @abstractmethod
    def _call(self, node: ast.Call, given: Given) -> Value | None:
        """Return the value of a call."""

    @abstractmethod
    def _arguments(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, node: ast.Call, given: Given
    ) -> dict[str, Value | None]:
        """Return the values of the parameters of a function in a call."""

    def of(self, node: ast.expr, given: Given) -> Value | None:
        """Return the value of an expression, as far as it is known."""
        key = node, id(given)
        if key in self._known:
            return self._known[key][0]
        if self._steps > STEPS or self._depth > _DEPTH:
            return None
        self._steps += 1
        self._depth += 1
        try:
            found = self._of(node, given)
        finally:
            self._depth -= 1
        self._known[key] = found, given  # which keeps its id from being used again
        return found

    def _of(self, node: ast.expr, given: Given) -> Value | None:
        match node:
            case ast.Name():
                return self._name(node, given)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(self.of(owner, given), name)
            case ast.Subscript(value=value, slice=index):
                return self._item(self.of(value, given), index)
            case ast.IfExp(body=body, orelse=otherwise):
                one = self.of(body, given)
                return one if one == self.of(otherwise, given) else None
            case ast.BinOp(left=left, op=op, right=right):
                return self._operation(left, op, right, given)
            case ast.UnaryOp(operand=operand):
                return self.of(operand, given)
            case ast.Call():
                return self._call(node, given)
        return None

    def _name(self, node: ast.Name, given: Given) -> Value | None:
        bindings = self._bindings(node)
        if bindings is None:
            return None
        values = [self._binding(binding, node.id, given) for binding in bindings]
        value = values[0] if values and all(each == values[0] for each in values) else None
        return self._conversions.of_name(value, node.id, node)

    def _bindings(self, node: ast.Name) -> Sequence[Binding] | None:
        """Return the bindings that a name may have where it is first read, None if the module has none."""
        if node not in self._reaching:
            found = self._tree.scope(node).lookup(node.id)
            self._reaching[node] = (
                self._first_time(reaching(self._tree, node, found[1]), node) if found is not None else None
            )
        return self._reaching[node]

    def _first_time(self, bindings: Sequence[Binding], site: ast.Name) -> Sequence[Binding]:
        """Return the bindings that hold when a loop first reaches a place: not those further down."""
        if len(bindings) < 2:
            return bindings
        here = position(self._tree.statement(site))
        before = [each for each in bindings if each.parameter or position(each.node) < here]
        return before or bindings

    def _binding(self, binding: Binding, name: str, given: Given) -> Value | None:
        key = binding.node, name
        if key in self._asked:
            return None
        self._asked.add(key)
        try:
            if binding.parameter:
                return given[name] if name in given else self._passed(binding, name)
            if isinstance(binding.node, (ast.For, ast.AsyncFor, ast.comprehension)):
                plain = isinstance(binding.node.target, ast.Name)
                return self._element(self.of(binding.node.iter, given)) if plain else None
            return self.of(binding.value, given) if binding.value is not None else None
        finally:
            self._asked.discard(key)

    def _passed(self, binding: Binding, name: str) -> Value | None:
        """Return what all calls in the module pass for a parameter, or None if they differ."""
        function = next((each for _, each in self._tree.ancestors(binding.node)), None)
        while function is not None and not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = self._tree.parents.get(function)
        if function is None or name == "self":
            return None
        calls = self._calls_of(function)
        if not 0 < len(calls) <= _CALLS:
            return None
        given = [self._arguments(function, call, {}) for call in calls]
        values = [each[name] for each in given if name in each]  # other calls are of another method
        return values[0] if values and all(each == values[0] for each in values) else None

    def _calls_of(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Sequence[ast.Call]:
        scope = self._tree.scopes.get(function)
        return self._facts.once(_calls, scope) if scope is not None else ()

    def _attribute(self, owner: Value | None, name: str) -> Value | None:
        """Return an attribute of a value."""
        if isinstance(owner, Tensor):
            return owner if name in SAME_ATTRIBUTES else None
        if owner is None or owner.dtype is None:
            return None
        if name in (keys := dict(owner.keys)):
            return part_of(owner, keys[name])
        if owner.definition is None:
            is_weight = name in ("weight", "bias") and owner.name in (CASTING | EMBEDDINGS | NORMS)
            return Tensor(owner.dtype or "float32") if is_weight else None
        return part_of(owner, self._own(owner.definition, name))

    def _own(self, owner: ast.ClassDef, name: str) -> Value | None:
        """Return what a class of the module stores in an attribute of `self`."""
        if (owner, name) in self._asked:
            return None
        self._asked.add((owner, name))
        try:
            found = self._stored.get((owner, name), ())
            values = [self.of(value, {"self": Module(definition=owner)}) for value in found]
        finally:
            self._asked.discard((owner, name))
        if not values or any(each != values[0] for each in values):
            return None
        return self._conversions.of_attribute(values[0], owner, f"self.{name}")

    @cached_property
    def _stored(self) -> Mapping[tuple[ast.ClassDef, str], list[ast.expr]]:
        """Return what the methods of classes store in attributes and buffers of `self`."""
        stored: dict[tuple[ast.ClassDef, str], list[ast.expr]] = {}
        unclear: set[tuple[ast.ClassDef, str]] = set()
        for path, bindings in self._tree.attributes.items():
            name = path.removeprefix("self.")
            for binding in bindings if name.isidentifier() and path != name else ():
                owner = class_around(self._tree, binding.node)
                if owner is not None and binding.value is not None:
                    stored.setdefault((owner, name), []).append(binding.value)
                elif owner is not None:
                    unclear.add((owner, name))
        for node in self._tree.nodes_with("register_buffer("):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="self"), attr="register_buffer"),
                    args=[ast.Constant(value=str(name)), value, *_],
                ) if (owner := class_around(self._tree, node)) is not None:
                    stored.setdefault((owner, name), []).append(value)
        return {key: values for key, values in stored.items() if key not in unclear}

    def _item(self, owner: Value | None, index: ast.expr) -> Value | None:
        if isinstance(owner, Module) and owner.keys and isinstance(index, ast.Constant):
            return part_of(owner, dict(owner.keys).get(str(index.value)))
        return self._element(owner)

    def _element(self, owner: Value | None) -> Value | None:
        """Return an element of a list of modules, or a part of a tensor."""
        if not isinstance(owner, Module):
            return owner
        same = owner.parts and all(each == owner.parts[0] for each in owner.parts)
        return part_of(owner, owner.parts[0]) if same else None

    def _operation(self, left: ast.expr, op: ast.operator, right: ast.expr, given: Given) -> Value | None:
        one, other = self.of(left, given), self.of(right, given)
        if isinstance(op, ast.MatMult):
            return self._cast([one, other])
        for value, node in ((one, right), (other, left)):
            if isinstance(value, Tensor) and isinstance(node, ast.Constant):
                return value
        return promoted([one, other])

    def _cast(self, operands: Sequence[Value | None]) -> Value | None:
        """Return the result of an operation that autocast casts the operands of."""
        dtypes = {each.dtype for each in operands if isinstance(each, Tensor)}
        self._found |= len(dtypes) > 1 and "float64" not in dtypes
        return Tensor(dtypes.pop()) if len(dtypes) == 1 and all(operands) else None


def _calls(facts: Names, scope: Scope) -> Sequence[ast.Call]:
    """Return the calls of a function by its name in the module, of a constructor by that of its class."""
    function = scope.node
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    owner = facts.tree.parents.get(function)
    name = owner.name if function.name == "__init__" and isinstance(owner, ast.ClassDef) else function.name
    nodes = facts.tree.nodes_with_name(name)
    return [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) == name]
