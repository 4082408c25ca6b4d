"""Changes in place of tensors and NumPy arrays."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from devicefix.facts.copies.moves import moves
from devicefix.facts.copies.views import Place, given_to, passed, place_of, views, whole_of
from devicefix.facts.flow.binding import contents, elements_of
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.parameters import Function, arguments_of
from devicefix.facts.flow.points import Point, path_of, root
from devicefix.facts.flow.steps import Steps
from devicefix.facts.flow.tensors import FUNCTIONS, METHODS, changes_numbers
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, Scope, dotted
from devicefix.facts.tree import walk
from devicefix.facts.values import last_name

_CHANGING = {*METHODS["change"], *(name.rpartition(".")[2] for name in FUNCTIONS["change"])}
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


def changes_at(facts: Facts, point: Point) -> Iterator[Change]:
    """Yield what is changed at a point, also by the functions of the module that it calls."""
    steps = Steps(facts)
    for node in point.nodes:
        for target, item in targets(facts, node):
            if (place := place_of(facts, target)) is not None:
                yield Change(place, item, node, target)
            if (whole := whole_of(facts, target)) is not None:
                yield Change(whole, False, node, target)
        if isinstance(node, ast.Call):
            own = steps.reached(node, lambda each: facts.once(changed_in, steps.scope_of(each)))
            yield from _by_function(facts, node, own, steps.scope_of(own)) if own is not None else ()


def _by_function(facts: Facts, call: ast.Call, own: Function, inside: Scope) -> Iterator[Change]:
    """Yield what a function of the module changes of the arguments of a call, or of other variables."""
    for inner, item in facts.once(changed_in, inside).items():
        given = [*given_to(facts, call, own, root(inner.path)), call.func][0]
        # What a function does to a copy that nothing keeps is lost on a GPU: it is sent, or received.
        if not (isinstance(given, ast.Call) and moves(facts, given) and place_of(facts, call) is None):
            for place in passed(facts, call, own, inner):
                yield Change(place, item, call, given)


def targets(facts: Facts, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the expressions that a node changes in place, and whether only an item of it is set."""
    match node:
        case ast.AugAssign(target=target, value=value):
            if elements_of(value) is None and not isinstance(value, ast.JoinedStr):
                yield _whole(target), False
        case ast.Subscript(ctx=ast.Store(), slice=index):
            if path_of(node) is None:
                yield _whole(node), not isinstance(index, (ast.Slice, ast.Tuple)) and not everything(index)
        case ast.Call():
            yield from _given(facts, node)


def _given(facts: Facts, call: ast.Call) -> Iterator[tuple[ast.expr, bool]]:
    """Yield what a method or a function of a library changes: what it is called on, or an argument."""
    called = last_name(call.func)
    known = not isinstance(call.func, ast.Attribute) or changes_numbers(called) or called in _CHANGING
    name = (facts.resolve(call.func) or "") if known else "?"
    in_torch = name.startswith("torch.")
    if not name and isinstance(call.func, ast.Attribute):
        if changes_numbers(called) or called in METHODS["change"]:
            yield call.func.value, called in METHODS["change"]
    elif call.args and (name in FUNCTIONS["change"] or (in_torch and changes_numbers(called))):
        yield call.args[0], False
    if called == "step" and isinstance(call.func, ast.Attribute):
        yield from ((each, False) for each in _optimized(facts, call.func.value))
    out = argument_of(call, "out", -1)
    if out is not None:
        yield from ((each, False) for each in getattr(out, "elts", [out]))
    if call.args and facts.tree.words.lines_with("inplace"):
        *_, module = views(facts, facts.value(call.func) or call.func)
        yield from ((call.args[0], False) for each in {call, module} if _is_in_place(facts, each))


def _is_in_place(facts: Facts, call: ast.expr) -> bool:
    """Return whether a call is that of a function of torch, or makes a module of it, that works in place."""
    if not isinstance(call, ast.Call) or not (facts.resolve(call.func) or "").startswith("torch."):
        return False
    inplace = argument_of(call, "inplace", -1)
    return isinstance(inplace, ast.Constant) and inplace.value is True


def _whole(node: ast.expr) -> ast.expr:
    """Return the tensor that an item is a part of; with a constant key, an item is a tensor itself."""
    while isinstance(node, ast.Subscript) and path_of(node) is None:
        node = node.value
    return node


def everything(index: ast.expr) -> bool:
    """Return whether an index is `:` or `...`."""
    if isinstance(index, ast.Slice):
        return index.lower is None and index.upper is None and index.step is None
    return isinstance(index, ast.Constant) and index.value is Ellipsis


def changed_in(facts: Facts, function: Scope) -> dict[Place, bool]:
    """Return what a function changes of its parameters, and of variables around it: whether only an item."""
    found: dict[Place, bool] = {}
    for target, item in (each for node in walk(function.node) for each in targets(facts, node)):
        for place in filter(None, (place_of(facts, target), whole_of(facts, target))):
            bindings = function.bindings.get(root(place.path), ())
            if not place.parameters and all(each.parameter for each in bindings):
                found[place] = item
    return found


# -- training ------------------------------------------------------------------------------------------


def trained_by(facts: Facts, call: ast.Call) -> Iterator[str]:
    """Yield the models whose parameters a call may change, an empty name for those of any optimizer."""
    if _steps(facts, call) or last_name(call.func) in facts.once(_stepping, facts.tree.root):
        yield ""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict":
        yield from filter(None, [dotted(call.func.value)])
    elif _may_train(facts, call.func):
        yield from filter(None, (dotted(argument) for _, argument in arguments_of(call)))


def _may_train(facts: Facts, function: ast.expr) -> bool:
    """Return whether nothing is known about a function: it is not of this module, nor of a library."""
    name = facts.resolve(function)
    if name is not None:
        return name.partition(".")[0] not in _NO_TRAINERS
    if isinstance(function, ast.Name):
        return facts.tree.scope(function).lookup(function.id) is None and not hasattr(builtins, function.id)
    return not (dotted(function) or "self").startswith("self")


def _steps(facts: Facts, call: ast.Call) -> bool:
    """Return whether a call is the step of an optimizer, as `env.step(action)` is not."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return False
    bound = map(facts.bindings, (call.func.value, *call.args[:1]))
    owner, *more = (facts.once(_is_optimizer, bindings) for bindings in bound)
    return owner is True or True in more if more else owner is not False


def _optimized(facts: Facts, optimizer: ast.expr) -> Iterator[ast.expr]:
    """Yield the tensors that an optimizer is given one by one: its step changes them."""
    bindings, scope = facts.bindings(optimizer), facts.tree.scope(optimizer)
    for made in (each.value for each in bindings if facts.once(_is_optimizer, bindings)):
        for each, _ in contents(facts, made.args[0]) if isinstance(made, ast.Call) and made.args else ():
            if facts.tree.scope(each) is scope or root(dotted(each) or "") == "self":
                yield each


def _is_optimizer(facts: Facts, bindings: Sequence[Binding]) -> bool | None:
    """Return whether a name is bound to an optimizer; False for a scheduler, None where it is not known."""
    values = [binding.value for binding in bindings]
    names = [facts.resolve(value.func) or "" if isinstance(value, ast.Call) else "" for value in values]
    if any(name.startswith("torch.optim.") and not name.startswith(_NO_OPTIMIZERS) for name in names):
        return True
    return False if names and all(name.startswith(_NO_OPTIMIZERS) for name in names) else None


def _stepping(facts: Facts, _module: Scope) -> frozenset[str]:
    """Return the names of the functions of the module that take an optimizer's step."""
    calls = (node for node in facts.tree.nodes_with(".step") if isinstance(node, ast.Call))
    around = (parent for call in calls if _steps(facts, call) for _, parent in facts.tree.ancestors(call))
    names = {parent.name for parent in around if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return frozenset(names - {"main", "__init__", "forward", "step", "__call__"})
