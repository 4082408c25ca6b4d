"""Changes in place of tensors and NumPy arrays."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from devicefix.facts.copies.moves import moves
from devicefix.facts.copies.views import Place, given_for, in_place, place_of
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.order import Flow
from devicefix.facts.flow.points import Point, path_of
from devicefix.facts.flow.steps import Steps
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, Scope, dotted
from devicefix.facts.tree import walk
from devicefix.facts.values import last_name

# Methods that end in an underscore and change no number.
HARMLESS = {
    "requires_grad_", "detach_", "retain_grad_", "share_memory_", "rename_", "squeeze_", "unsqueeze_", "t_",
    "transpose_", "swapaxes_", "resize_", "resize_as_", "set_", "pin_memory_", "clip_grad_norm_",
    "clip_grad_value_",
}  # fmt: skip
_OF_ARRAYS = {"fill", "sort"}  # the methods of NumPy arrays that change them
_CHANGERS = {*_OF_ARRAYS, "copyto", "put", "place", "putmask", "shuffle"}
_FIRST_ARGUMENT = re.compile(
    r"numpy\.(copyto|put|place|putmask)|(numpy\.)?random\.shuffle|torch\.(?!nn\.utils\.clip_grad)(\w+\.)*[a-z]\w*_"
)
_NO_OPTIMIZERS = ("torch.optim.lr_scheduler.", "torch.profiler.", "transformers.get_")
_NO_TRAINERS = {"torch", "numpy", "copy", "os", "json", "pickle", "logging", "time", "math", "torchvision"}


class Change(NamedTuple):
    """A change in place.

    Attributes:
        place: the tensor that is changed.
        item: whether only an item is set, which may be one of a list.
        node: what changes it.
        target: the expression that is changed.
    """

    place: Place
    item: bool
    node: ast.AST
    target: ast.expr


class Changes:
    """The changes in place of one module.

    Args:
        facts: the facts of the module.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._steps = Steps(facts)
        self._known: dict[Point, list[Change]] = {}
        self._by_path: dict[Flow, dict[str, list[tuple[Point, Change]]]] = {}
        self._trained: dict[tuple[Flow, str], dict[Point, ast.AST]] = {}
        self._changing: dict[tuple[Flow, Place], dict[Point, ast.AST]] = {}
        self._effects: dict[ast.AST, dict[str, bool]] = {}

    def at(self, point: Point) -> list[Change]:
        """Return what is changed at a point."""
        if point not in self._known:
            nodes = [
                node for node in point.nodes if isinstance(node, (ast.AugAssign, ast.Call, ast.Subscript))
            ]
            self._known[point] = [
                change for node in nodes for change in (*self._direct(node), *self._by_function(node))
            ]
        return self._known[point]

    def by_path(self, flow: Flow) -> dict[str, list[tuple[Point, Change]]]:
        """Return what is changed in a body, with the points that do, by the paths of the tensors."""
        if flow not in self._by_path:
            found = self._by_path[flow] = {}
            for point in flow.points:
                for change in self.at(point):
                    found.setdefault(change.place.path, []).append((point, change))
        return self._by_path[flow]

    def of(self, flow: Flow, place: Place) -> dict[Point, ast.AST]:
        """Return the points of a body that change a tensor, each with what changes it."""
        key = flow, place
        if key not in self._changing:
            self._changing[key] = self._of(flow, place)
        return self._changing[key]

    def _of(self, flow: Flow, place: Place) -> dict[Point, ast.AST]:
        if place.parameters:
            return self._training(flow, place.path)
        found = dict(self._training(flow, "")) if place.trained else {}
        for point, change in self.by_path(flow).get(place.path, ()):
            if not (change.item and place.indexed) and not self._facts.is_guarded(change.node):
                found.setdefault(point, change.node)
        return found

    def _direct(self, node: ast.AST) -> Iterator[Change]:
        """Yield what a node changes itself."""
        for target, item in targets(self._facts, node):
            yield from self._changed(target, item, node)

    def _by_function(self, node: ast.AST) -> Iterator[Change]:
        """Yield what the function of the module changes that a call calls: its parameters."""
        if not isinstance(node, ast.Call):
            return
        own = node.func if isinstance(node.func, ast.Lambda) else self._steps.function(node.func)
        if own is None:
            return
        if own not in self._effects:
            changes = (change for inner in walk(own) for change in self._direct(inner))
            bindings = self._steps.scope_of(own).bindings
            of_parameters = (each for each in changes if len(bindings.get(each.place.path, ())) == 1)
            self._effects[own] = {change.place.path: change.item for change in of_parameters}
        for name, item in self._effects[own].items():
            given = given_for(self._facts, node, own, name)
            # What a function does to a copy that nothing keeps is lost on a GPU: it is sent, or received.
            if given is not None and not (isinstance(given, ast.Call) and moves(self._facts, given)):
                yield from self._changed(given, item, node)

    def _changed(self, target: ast.expr, item: bool, node: ast.AST) -> Iterator[Change]:
        place = place_of(self._facts, target)
        if place is not None:
            yield Change(place, item, node, target)

    # -- training --------------------------------------------------------------------------------------

    def _training(self, flow: Flow, model: str) -> dict[Point, ast.AST]:
        """Return the points that change the parameters of a model; without a name, an optimizer's steps."""
        key = flow, model
        if key not in self._trained:
            found = self._trained[key] = {}
            for point in flow.points:
                calls = (node for node in point.nodes if isinstance(node, ast.Call))
                training = next((call for call in calls if self._trains(call, model)), None)
                by_hand = (
                    change.node
                    for change in self.at(point)
                    if change.place.parameters and change.place.path == model
                )
                if (node := training or next(by_hand, None)) is not None:
                    found[point] = node
        return self._trained[key]

    def _trains(self, call: ast.Call, model: str) -> bool:
        """Return whether a call may train a model."""
        if _steps(self._facts, call) or last_name(call.func) in self._facts.once(
            _stepping, self._facts.tree.root
        ):
            return True
        if isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict":
            return dotted(call.func.value) == model
        given = (dotted(each) for each in (*call.args, *(keyword.value for keyword in call.keywords)))
        return bool(model) and model in given and self._may_train(call.func)

    def _may_train(self, function: ast.expr) -> bool:
        """Return whether nothing is known about a function: it is not of this module, nor of a library."""
        name = self._facts.resolve(function)
        if name is not None:
            return name.partition(".")[0] not in _NO_TRAINERS
        if isinstance(function, ast.Name):
            return self._facts.tree.scope(function).lookup(function.id) is None and not hasattr(
                builtins, function.id
            )
        return not (dotted(function) or "self").startswith("self")


def targets(facts: Facts, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the expressions that a node changes in place, and whether only an item of it is set."""
    match node:
        case ast.AugAssign(target=target, value=value):
            if not isinstance(value, (ast.List, ast.Tuple, ast.ListComp, ast.JoinedStr)):
                yield _whole(target), False
        case ast.Subscript(ctx=ast.Store(), slice=index):
            if path_of(node) is None:
                yield _whole(node), not isinstance(index, (ast.Slice, ast.Tuple)) and not everything(index)
        case ast.Call():
            yield from _given(facts, node)


def _given(facts: Facts, call: ast.Call) -> Iterator[tuple[ast.expr, bool]]:
    """Yield what a method or a function of a library changes: what it is called on, or an argument."""
    called = last_name(call.func)
    if changes_numbers(called) or called in _CHANGERS:
        name = facts.resolve(call.func)
        if name is None and isinstance(call.func, ast.Attribute):
            yield call.func.value, called in _OF_ARRAYS
        elif name is not None and call.args and _FIRST_ARGUMENT.fullmatch(name):
            yield call.args[0], False
    if call.keywords:
        out, inplace = (argument_of(call, keyword, -1) for keyword in ("out", "inplace"))
        if out is not None:
            yield from ((each, False) for each in getattr(out, "elts", [out]))
        if call.args and isinstance(inplace, ast.Constant) and inplace.value is True:
            if (facts.resolve(call.func) or "").startswith("torch."):
                yield call.args[0], False


def _whole(node: ast.expr) -> ast.expr:
    """Return the tensor that an item is a part of; with a constant key, an item is a tensor itself."""
    while isinstance(node, ast.Subscript) and path_of(node) is None:
        node = node.value
    return node


def changes_numbers(method: str) -> bool:
    """Return whether a tensor's method of this name changes the numbers in it."""
    return in_place(method) and method not in HARMLESS


def everything(index: ast.expr) -> bool:
    """Return whether an index is `:` or `...`."""
    if isinstance(index, ast.Slice):
        return index.lower is None and index.upper is None and index.step is None
    return isinstance(index, ast.Constant) and index.value is Ellipsis


def _steps(facts: Facts, call: ast.Call) -> bool:
    """Return whether a call is the step of an optimizer, as `env.step(action)` is not."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return False
    if call.args:
        return any(facts.once(_any_optimizer, facts.bindings(of)) for of in (call.func.value, call.args[0]))
    return not facts.once(_all_schedulers, facts.bindings(call.func.value))


def _stepping(facts: Facts, _module: Scope) -> frozenset[str]:
    """Return the names of the functions of the module that take an optimizer's step."""
    steps = (
        node for node in facts.tree.nodes_with(".step") if isinstance(node, ast.Call) and _steps(facts, node)
    )
    functions = (parent for node in steps for _, parent in facts.tree.ancestors(node))
    names = {
        parent.name for parent in functions if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    return frozenset(names - {"main", "__init__", "forward", "step", "__call__"})


def _any_optimizer(facts: Facts, bindings: Sequence[Binding]) -> bool:
    return any(
        name.startswith("torch.optim.") and not name.startswith(_NO_OPTIMIZERS)
        for name in _makers(facts, bindings)
    )


def _all_schedulers(facts: Facts, bindings: Sequence[Binding]) -> bool:
    names = list(_makers(facts, bindings))
    return bool(names) and all(name.startswith(_NO_OPTIMIZERS) for name in names)


def _makers(facts: Facts, bindings: Sequence[Binding]) -> Iterator[str]:
    """Yield the full names of the functions that make what a name is bound to, empty for an unknown one."""
    for binding in bindings:
        yield facts.resolve(binding.value.func) or "" if isinstance(binding.value, ast.Call) else ""
