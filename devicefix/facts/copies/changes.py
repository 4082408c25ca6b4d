"""Changes in place of tensors and NumPy arrays."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from devicefix.facts.copies.bodies import Bodies, Function, positional_names
from devicefix.facts.copies.copying import move_inside
from devicefix.facts.copies.expressions import constant_key, everything, in_place, keyword, root
from devicefix.facts.copies.places import Place, place_of, places_of
from devicefix.facts.copies.training import Training
from devicefix.facts.flow.order import Flow, Point, without_index
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Scope
from devicefix.facts.values import last_name

# Methods that end in an underscore and change no number.
HARMLESS = {
    "requires_grad_", "detach_", "retain_grad_", "share_memory_", "rename_", "squeeze_", "unsqueeze_", "t_",
    "transpose_", "swapaxes_", "resize_", "resize_as_", "set_", "pin_memory_", "clip_grad_norm_",
    "clip_grad_value_",
}  # fmt: skip
_NUMPY_CHANGES = {"fill", "sort", "itemset", "setfield", "byteswap"}
_CHANGING = (ast.AugAssign, ast.Call, ast.Subscript)  # the nodes that may change something
_OF_NUMPY = ("copyto", "put", "place", "putmask", "fill_diagonal")
_OF_DISTRIBUTED = (
    "all_reduce", "broadcast", "recv", "irecv", "reduce", "all_gather_into_tensor", "reduce_scatter_tensor",
)  # fmt: skip
_FIRST_ARGUMENT = re.compile(
    rf"numpy\.({'|'.join(_OF_NUMPY)})|(numpy\.)?random\.shuffle"
    rf"|torch\.distributed\.({'|'.join(_OF_DISTRIBUTED)})"
    r"|torch\.(?!nn\.utils\.clip_grad)(\w+\.)*[a-z]\w*_"
)
_CHANGERS = {*_OF_NUMPY, *_OF_DISTRIBUTED, "shuffle"}
_TENSORS = ("torch.Tensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter")


class Change(NamedTuple):
    """A change in place.

    Attributes:
        place: the place.
        item: whether only an item is set or moved, which may be one of a list.
        node: the expression that is changed.
        received: whether it is received from another process; the process that sends it keeps it as it is.
    """

    place: Place
    item: bool
    node: ast.expr
    received: bool = False


class Changes:
    """Find what the statements of a module change in place.

    Args:
        bodies: the bodies of the module.
    """

    def __init__(self, bodies: Bodies) -> None:
        self._facts = bodies.facts
        self._training = Training(bodies)
        self._effects = _Effects(bodies)
        self._changing: dict[Point, list[tuple[ast.AST, Change]]] = {}
        self._paths: dict[Point, dict[str, list[tuple[ast.AST, bool]]]] = {}
        self._training_at: dict[tuple[Point, str], ast.AST | None] = {}
        self._within: dict[Flow, frozenset[str]] = {}

    def at(self, point: Point, place: Place, but: ast.AST | None = None) -> ast.AST | None:
        """Return what changes a place at a point, other than the node `but`."""
        if place.parameters:
            return self._trained(point, place.path)
        for node, item in self._by_path(point).get(place.path, ()):
            if node is not but and not (item and place.indexed) and not self._facts.is_guarded(node):
                return node
        return self._stepped(point) if place.trained else None

    def within(self, flow: Flow, place: Place) -> bool:
        """Return whether a place may be changed anywhere in a flow."""
        if place.parameters or place.trained:
            return any(self.at(point, place) for point in flow.points)
        return place.path in self.paths(flow)

    def paths(self, flow: Flow) -> frozenset[str]:
        """Return the paths of the places that are changed anywhere in a flow."""
        if flow not in self._within:
            self._within[flow] = frozenset(path for point in flow.points for path in self._by_path(point))
        return self._within[flow]

    def changed(self, point: Point) -> list[tuple[ast.AST, Change]]:
        """Return what is changed at a point, each with the node that changes it."""
        if point not in self._changing:
            self._changing[point] = [
                (node, change)
                for node in point.nodes
                if isinstance(node, _CHANGING)
                for change in self._effects.of(node)
                # What is received into a copy is lost: it is sent.
                if not (change.received and move_inside(self._facts, change.node))
            ]
        return self._changing[point]

    def _by_path(self, point: Point) -> dict[str, list[tuple[ast.AST, bool]]]:
        """Return what changes a place at a point, by the path of that place."""
        if point not in self._paths:
            found = self._paths[point] = {}
            for node, change in self.changed(point):
                if not change.place.parameters:
                    found.setdefault(change.place.path, []).append((node, change.item))
        return self._paths[point]

    def _trained(self, point: Point, model: str) -> ast.AST | None:
        """Return what changes the parameters of a model at a point."""
        key = point, model
        if key not in self._training_at:
            found = (node for node in point.nodes if self._training.changes(node, model))
            by_hand = (node for node, change in self.changed(point) if _of_model(change, model))
            self._training_at[key] = next(found, None) or next(by_hand, None)
        return self._training_at[key]

    def _stepped(self, point: Point) -> ast.AST | None:
        """Return what takes an optimizer's step at a point."""
        return next(filter(self._training.trains, point.nodes), None)


def _of_model(change: Change, model: str) -> bool:
    """Return whether a change is one of a model's parameters."""
    place = change.place
    if place.parameters:
        return f"{place.path}.".startswith(f"{model}.")
    return place.path.startswith(f"{model}.") and place.path.endswith((".weight", ".bias"))


def changes_numbers(method: str) -> bool:
    """Return whether a tensor's method of this name changes the numbers in it."""
    return in_place(method) and method not in HARMLESS


class _Effect(NamedTuple):
    """The changes that a function makes.

    Attributes:
        parameters: its parameters: the position and name of each, whether only an item is set, and whether it
            is received from another process.
        outside: paths of the module.
    """

    parameters: tuple[tuple[int, str, bool, bool], ...]
    outside: frozenset[str]


class _Effects:
    """Find what nodes change in place, also through the functions of the module that they call.

    Of a method, also what the functions change that it calls; calls are not followed further than that.
    """

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._facts = bodies.facts
        self._known: dict[Function, _Effect | None] = {}
        self._by_method_name: dict[str, frozenset[str]] = {}

    def of(self, node: ast.AST) -> Iterator[Change]:
        """Return what a node changes."""
        yield from self._with_functions(node)
        yield from self._by_method(node)

    def _with_functions(self, node: ast.AST) -> Iterator[Change]:
        yield from _direct(self._facts, node)
        yield from self._by_function(node)

    def _by_function(self, node: ast.AST) -> Iterator[Change]:
        """Return what is changed by the function or lambda of the module that a call calls."""
        if not isinstance(node, ast.Call):
            return
        called = node.func
        if isinstance(called, ast.Lambda):
            yield from self._by_lambda(node, called)
        elif isinstance(called, ast.Name) and called.id in self._functions:
            for function in self._functions[called.id]:
                if (effect := self._effect(function)) is not None:
                    yield from self._passed(node, effect, skipped=0)
        elif isinstance(called, ast.Name) and isinstance(value := self._facts.value(called), ast.Lambda):
            yield from self._by_lambda(node, value)
        elif isinstance(called, ast.Attribute) and called.attr in self._methods:
            for owner, function in self._methods[called.attr]:
                if self._is_object(called.value, owner) and (effect := self._effect(function)) is not None:
                    yield from self._passed(node, effect, skipped=1)

    def _passed(self, call: ast.Call, effect: _Effect, skipped: int) -> Iterator[Change]:
        """Return what a call changes through the parameters of a function, and outside it."""
        for index, name, item, received in effect.parameters:
            given = keyword(call, name)
            if given is None and 0 <= index - skipped < len(call.args):
                given = call.args[index - skipped]
            if given is not None and not isinstance(given, ast.Starred):
                for change in _whole(self._facts, given, item):
                    yield change._replace(received=received)
        for path in effect.outside:
            yield Change(Place(path), False, call.func)

    def _by_lambda(self, call: ast.Call, function: ast.Lambda) -> Iterator[Change]:
        names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
        for inner in ast.walk(function.body):
            for change in _direct(self._facts, inner) if isinstance(inner, _CHANGING) else ():
                name = root(change.place.path)
                if name not in names:
                    yield change
                elif change.place.path == name and names.index(name) < len(call.args):
                    yield from _whole(self._facts, call.args[names.index(name)], change.item)

    def _is_object(self, node: ast.expr, owner: ast.ClassDef) -> bool:
        """Return whether an expression is an object of a class of the module."""
        scopes = (scope.node for scope in self._facts.tree.scope(node).chain())
        function = next((around for around in scopes if isinstance(around, Function)), None)
        if function is not None and self._facts.tree.parents.get(function) is owner:
            if isinstance(node, ast.Name) and node.id == self._bodies.receiver(function):
                return True
        value = node if isinstance(node, ast.Call) else self._facts.value(node)
        return isinstance(value, ast.Call) and last_name(value.func) == owner.name

    def _by_method(self, node: ast.AST) -> Iterator[Change]:
        """Return what is changed by a method of a class of the module."""
        match node:
            case ast.Call(func=ast.Attribute(attr=name, value=receiver)) if name in self._methods:
                whole = place_of(self._facts, receiver)
                if whole is not None:
                    for rest in self._changed_by(name):
                        yield Change(Place(whole.path + rest), False, receiver)

    @cached_property
    def _functions(self) -> dict[str, list[Function]]:
        """Return the functions of the module that are no methods, by their names."""
        found: dict[str, list[Function]] = {}
        for function in self._bodies.functions:
            if not self._bodies.is_method(function):
                found.setdefault(function.name, []).append(function)
        return found

    @cached_property
    def _methods(self) -> dict[str, list[tuple[ast.ClassDef, Function]]]:
        """Return the methods of the module's classes, by their names."""
        found: dict[str, list[tuple[ast.ClassDef, Function]]] = {}
        for function in self._bodies.functions:
            owner = self._facts.tree.parents.get(function)
            if isinstance(owner, ast.ClassDef):
                found.setdefault(function.name, []).append((owner, function))
        return found

    def _effect(self, function: Function) -> _Effect | None:
        """Return what a function changes, None if it changes nothing; from a cache."""
        if function not in self._known:
            self._known[function] = self._effect_of(function)
        return self._known[function]

    def _effect_of(self, function: Function) -> _Effect | None:
        changed = self._changed_in(function, lambda node: _direct(self._facts, node), items=True)
        receiver = self._bodies.receiver(function)
        names = [*positional_names(function), *(parameter.arg for parameter in function.args.kwonlyargs)]
        parameters = tuple(
            (index, name, *changed[name])
            for index, name in enumerate(names)
            if name in changed and name != receiver
        )
        local = self._facts.tree.scopes[function].bindings
        outside = frozenset(
            path for path, (item, _) in changed.items() if root(path) not in local and not item
        )
        return _Effect(parameters, outside) if parameters or outside else None

    def _changed_by(self, method: str) -> frozenset[str]:
        """Return what the methods of a name change of the object that they are called on; from a cache.

        The empty string is the object itself, for the methods of a class of tensors.
        """
        if method not in self._by_method_name:
            found = (path for owner, each in self._methods[method] for path in self._own_paths(owner, each))
            self._by_method_name[method] = frozenset(found)
        return self._by_method_name[method]

    def _own_paths(self, owner: ast.ClassDef, function: Function) -> Iterator[str]:
        receiver = self._bodies.receiver(function)
        if receiver is not None:
            for path in self._changed_in(function, self._with_functions):
                if path.startswith(f"{receiver}."):
                    yield path.removeprefix(receiver)
                elif path == receiver and self._is_tensor(owner):
                    yield ""

    def _is_tensor(self, owner: ast.AST | None) -> bool:
        """Return whether a class is one of tensors."""
        return isinstance(owner, ast.ClassDef) and any(
            self._facts.resolve(base) in _TENSORS or self._is_tensor(self._class(base))
            for base in owner.bases
        )

    def _class(self, base: ast.expr) -> ast.AST | None:
        found = self._facts.tree.scope(base).lookup(base.id) if isinstance(base, ast.Name) else None
        return found[1][0].node if found is not None and len(found[1]) == 1 else None

    def _changed_in(
        self, function: Function, changes: Callable[[ast.AST], Iterator[Change]], items: bool = False
    ) -> dict[str, tuple[bool, bool]]:
        """Return the paths that a function changes and does not bind.

        Args:
            function: the function.
            changes: returns what a node changes.
            items: whether an item that is set counts, which may be one of a list.

        Returns:
            the paths, each with whether only an item is set, and whether it is received from another process.
        """
        points = self._bodies.flow(function).points
        of_tensors = self._is_tensor(self._facts.tree.parents.get(function))
        found: dict[str, tuple[bool, bool]] = {}
        for point in points:
            for node in point.nodes:
                if isinstance(node, _CHANGING):
                    for change in changes(node):
                        if (of_tensors or items or not change.item) and not change.place.parameters:
                            item, received = found.get(change.place.path, (True, False))
                            found[change.place.path] = item and change.item, received or change.received
        bound = frozenset().union(*(point.bound for point in points)) if found else frozenset()
        return {path: how for path, how in found.items() if path not in bound}


def _direct(facts: Facts, node: ast.AST) -> Iterator[Change]:
    """Return what a node changes itself."""
    match node:
        case ast.AugAssign(target=target, value=value):
            if not isinstance(value, (ast.List, ast.Tuple, ast.ListComp, ast.JoinedStr)):
                yield from _whole(facts, target, False)
        case ast.Subscript(ctx=ast.Store(), value=value) if not constant_key(node):
            yield from _whole(
                facts,
                value,
                not isinstance(node.slice, (ast.Slice, ast.Tuple)) and not everything(node.slice),
            )
        case ast.Call(func=function):
            if isinstance(function, ast.Attribute):
                if changes_numbers(function.attr):
                    yield from _whole(facts, function.value, False)
                elif function.attr in _NUMPY_CHANGES:
                    yield from _whole(facts, function.value, True)
            yield from _arguments(facts, node)


def _arguments(facts: Facts, node: ast.Call) -> Iterator[Change]:
    """Return what a call changes of its arguments, if it is one of a library."""
    out = keyword(node, "out")
    if out is not None:
        for each in out.elts if isinstance(out, ast.Tuple) else (out,):
            yield from _whole(facts, each, False)
    if node.args and _may_change_arguments(facts, node.func):
        name = facts.resolve(node.func) or ""
        if _FIRST_ARGUMENT.fullmatch(name) or (name.startswith("torch.") and _in_place(node)):
            received = name.startswith("torch.distributed.")
            yield from (change._replace(received=received) for change in _whole(facts, node.args[0], False))
        elif not name and _is_layer(facts, node.func):
            yield from _whole(facts, node.args[0], False)


def _may_change_arguments(facts: Facts, function: ast.expr) -> bool:
    """Return whether a function may be one of those, by the name of an attribute, which takes no time."""
    if not isinstance(function, ast.Attribute) or facts.once(_names_inplace, facts.tree.root):
        return True
    return function.attr.endswith("_") or function.attr in _CHANGERS


def _names_inplace(facts: Facts, _module: Scope) -> bool:
    return "inplace" in facts.tree.text


def _in_place(node: ast.Call) -> bool:
    inplace = keyword(node, "inplace")
    return isinstance(inplace, ast.Constant) and inplace.value is True


def _is_layer(facts: Facts, node: ast.expr) -> bool:
    """Return whether an expression is a layer that works in place, such as `nn.ReLU(inplace=True)`."""
    value = node if isinstance(node, ast.Call) else facts.value(node)
    if not isinstance(value, ast.Call) or not (facts.resolve(value.func) or "").startswith("torch.nn."):
        return False
    if last_name(value.func) == "Sequential" and value.args:
        return _is_layer(facts, value.args[0])
    return _in_place(value)


def _whole(facts: Facts, node: ast.expr, item: bool) -> Iterator[Change]:
    if isinstance(node, ast.Subscript) and not constant_key(node):
        node = without_index(node)
    for place in places_of(facts, node):
        yield Change(place, item, node)
