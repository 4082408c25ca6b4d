"""Find the tensor that an expression is, or is a view of, where there is only the CPU."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from devicefix.facts.copies.moves import (
    already_there,
    goes_to_cpu,
    is_moved,
    is_parameter,
    is_typed,
    moved,
    moves,
    values_of,
)
from devicefix.facts.flow.binding import all_collections, contents, element_pairs, elements_of
from devicefix.facts.flow.kinds import Kind
from devicefix.facts.flow.kinds.calls import results
from devicefix.facts.flow.kinds.kind import NUMBERS
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.parameters import Function, described, positional
from devicefix.facts.flow.points import is_view, path_of, root
from devicefix.facts.flow.reaching import position, reaching
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.flow.steps import Steps, is_property
from devicefix.facts.flow.tensors import FUNCTIONS, METHODS, in_place
from devicefix.facts.module import Facts
from devicefix.facts.path_conditions import conditions_around
from devicefix.facts.scopes import Binding, Scope
from devicefix.facts.tree import walk
from devicefix.facts.values import last_name, receiver

Result = TypeVar("Result")

_HOPS = 4  # from the elements of an iteration to the model
_LIBRARY = re.compile(r"(torch|numpy)(\.|\Z)")


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor, by a name or a dotted path in one body, with constant keys (`batch['image']`).

    Attributes:
        path: the name or path.
        indexed: whether it is a part of that which a plain index chooses, maybe an element of a list.
        parameters: whether it is the parameters of the module of that name.
        buffer: whether it is a NumPy array.
        trained: whether it is a parameter, which an optimizer changes.
    """

    path: str
    indexed: bool = False
    parameters: bool = False
    buffer: bool = False
    trained: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """An expression that is a copy on a GPU, and its source itself, or a view of it, on a CPU.

    Attributes:
        call: the call that copies.
        outer: the expression around it that is a view of it.
        source: what is copied.
        base: the expression that is copied, without what makes a view of it.
        twice: whether it is moved more than once, as in `x.cuda().cpu()`.
    """

    call: ast.Call
    outer: ast.expr
    source: Place
    base: ast.expr
    twice: bool = False


def copy_of(facts: Facts, outer: ast.expr, calls: bool = True) -> Copy | None:
    """Return the copy that an expression is, or is a view of.

    Args:
        facts: the facts of the module.
        outer: the expression.
        calls: whether to look into the functions of the module that the expression calls.
    """
    chain = list(views(facts, outer))
    moving = [node for node in chain if isinstance(node, ast.Call) and moves(facts, node)]
    if not moving:
        return _state_on_cpu(outer) or (_returned(facts, chain[-1]) if calls else None)
    place = place_of(facts, outer)
    if place is None:
        return None
    trained = _is_trained(facts, chain[-1])
    return Copy(moving[0], outer, replace(place, trained=trained), chain[-1], len(moving) > 1)


def _is_trained(facts: Facts, node: ast.expr) -> bool:
    """Return whether a tensor is a leaf that requires a gradient, as far as the module shows."""
    values = filter(None, values_of(facts, node))
    return any(is_parameter(facts, each) for value in values for each in views(facts, value))


def is_copied(facts: Facts, copy: Copy) -> bool:
    """Return whether a copy that the syntax shows is made, and only on a GPU, as far as the module shows."""
    scope, _ = _start(facts, copy.base)
    if scope is not None and isinstance(scope.node, ast.Lambda):  # a parameter, which nothing else names
        return False
    if facts.is_guarded(copy.call) and not _is_replaced(facts, copy):
        return False
    if not copy.twice and already_there(facts, copy.call, copy.base):
        return False
    if copy.source.parameters and not goes_to_cpu(facts, copy.call):  # of a model that is on the GPU already
        reads = facts.tree.reads(copy.source.path)
        calls = (facts.tree.parents.get(facts.tree.parents.get(read)) for read in reads)
        return not any(isinstance(each, ast.expr) and is_moved(facts, each) for each in (*reads, *calls))
    return copy.source.parameters or not _is_module(facts, copy)  # it moves itself


def _is_replaced(facts: Facts, copy: Copy) -> bool:
    """Return whether the source replaces a guarded copy on a CPU: `x.cuda() if available else x`."""
    for child, parent in facts.tree.ancestors(copy.call):
        if isinstance(parent, ast.IfExp) and child is parent.body:
            other = place_of(facts, parent.orelse)
            return other is not None and other.path == copy.source.path and not facts.is_guarded(parent)
    return False


def _is_module(facts: Facts, copy: Copy) -> bool:
    """Return whether what is copied is shown to be a module, maybe by a method that only modules have."""
    methods, start = METHODS["module"], _start(facts, copy.base)[0]
    attributes = (node for node in facts.tree.nodes_with(*methods) if isinstance(node, ast.Attribute))
    named = (node for node in attributes if node.attr in methods)
    owners = (node for node in named if path_of(node.value) == copy.source.path)
    shown = any(_start(facts, node)[0] is start for node in owners)
    return shown or facts.kinds.of(copy.base).can_be(Kind.MODULE) is True


def is_given(facts: Facts, node: ast.expr, change: ast.AST) -> bool:
    """Return whether a tensor may be a parameter of the function around it, or a part of one, if changed."""
    found, own = reaching(facts.tree, node, _start(facts, node)[1]), facts.tree.statement(node)
    others = [each.node for each in found if not each.parameter and position(each.node) < position(own)]
    anew = any(set() < _conditions(facts, each) <= _conditions(facts, change) for each in others)
    return any(each.parameter for each in found) and not anew


def _conditions(facts: Facts, node: ast.AST) -> set[tuple[str, bool]]:
    return {(ast.unparse(test), way) for test, way in conditions_around(facts.tree, node)}


def _start(facts: Facts, node: ast.expr) -> tuple[Scope | None, Sequence[Binding]]:
    """Return the scope that binds the name that a path starts with, None for `self`, and its bindings."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    is_self = isinstance(node, ast.Name) and node.id == "self"
    return (None if is_self else facts.tree.lookup(node)) or (None, ())


def views(facts: Facts, node: ast.expr) -> Iterator[ast.expr]:
    """Yield an expression and those that it is a view of on a CPU, from the outside in."""
    inner: ast.expr | None = node
    seen: set[ast.expr] = set()
    while inner is not None and inner not in seen:  # `for x in [x]` leads back
        yield inner
        seen.add(inner)
        is_path = path_of(inner) is not None and not isinstance(inner, ast.Name)
        inner = None if is_path else _inside(facts, inner)


def place_of(facts: Facts, node: ast.expr, calls: bool = True) -> Place | None:
    """Return the tensor that an expression is, or is a view of, on a CPU, also through one call."""
    chain = list(views(facts, node))
    base = chain[-1]
    converted = any(_converts(each) or is_typed(facts, each) for each in chain)
    makers = (*FUNCTIONS["make"], "torch.from_numpy")
    made = (each for each in chain if isinstance(each, ast.Call))
    arrays = [each for each in made if facts.call(each, *makers) or is_typed(facts, each)]
    if converted and _is_of_another_type(_calls(facts, base), bool(arrays)):
        return None
    for model in filter(None, (_model_of(facts, each) for each in reversed(chain))):
        return _parameters_of(model)
    path = path_of(base)
    for call, own, places in _results(facts, base, _places) if path is None and calls else ():
        return next(passed(facts, call, own, places[0]), None) if places else None
    if path is None or _LIBRARY.match(facts.resolve(base) or ""):
        return None
    parts = (each for each in chain[:-1] if isinstance(each, (ast.Name, ast.Subscript)))
    indexed = any(not isinstance(getattr(each, "slice", None), (ast.Slice, ast.Tuple)) for each in parts)
    # An item of a tensor is a view of it.
    indexed = indexed and not facts.kinds.of(base).are({Kind.TENSOR})
    buffer = bool(arrays) and not facts.kinds.of(arrays[-1].args[0]).can_be(Kind.TENSOR)
    return Place(path, indexed, buffer=buffer)


def _calls(facts: Facts, node: ast.expr) -> list[ast.Call]:
    """Return the calls that make what a name may be bound to where it is read."""
    return [value for value in values_of(facts, node) if isinstance(value, ast.Call)]


def _is_of_another_type(makers: Sequence[ast.Call], is_array: bool) -> bool:
    """Return whether a conversion to floats copies what some calls make; a plain array is one of pixels."""
    parts = [part for call in makers for part in walk(call)]
    if any(isinstance(part, ast.keyword) and part.arg == "dtype" for part in parts):
        return not any(last_name(part) == "float32" for part in parts if isinstance(part, ast.expr))
    if any(isinstance(part, ast.Constant) and isinstance(part.value, float) for part in parts):
        return is_array  # NumPy's are of double precision
    return is_array or any(last_name(call.func) in FUNCTIONS["integer"] for call in makers)


def _parameters_of(model: str) -> Place:
    return Place(model.removesuffix(".module"), parameters=True)  # it may be wrapped for several GPUs


def _inside(facts: Facts, node: ast.expr) -> ast.expr | None:
    """Return the expression that another one is, or is a view of, on a CPU."""
    match node:
        case ast.NamedExpr(value=of) | ast.IfExp(body=of) | ast.Call(func=ast.Lambda(body=of), args=[]):
            return of
        case ast.Attribute(value=value) if is_view(node):
            return value
        case ast.Name() | ast.Subscript() | ast.Call(func=ast.Name(id="next")):
            return _whole(facts, node)
        case ast.Call(func=ast.Lambda(body=ast.Name(id=name)) as function):  # `(lambda t: t)(x)`
            return next(iter(given_to(facts, node, function, name)), None)
        case ast.Call() if moves(facts, node):
            return moved(node)
        case ast.Call(args=[first, *_]) if facts.call(node, *FUNCTIONS["make"], *FUNCTIONS["view"]):
            return first
        case ast.Call(func=ast.Attribute(attr=attr, value=value)) if facts.resolve(node.func) is None:
            return value if attr in METHODS["view"] or in_place(attr) or _converts(node) else None
    return None


def _whole(facts: Facts, node: ast.Name | ast.Subscript | ast.Call) -> ast.expr | None:
    """Return the expression that a part of a tensor is a view of, or the only element of a collection."""
    collection: ast.expr | None = None
    match node:
        case ast.Name():
            collection = _iterated_by(facts, node, ast.comprehension)
        case ast.Subscript(value=collection):
            pass
        case ast.Call(args=[ast.Call(func=ast.Name(id="iter"), args=[collection])]):
            pass
    elements = elements_of(collection) if collection is not None else None
    if elements is not None:
        return elements[0] if len(elements) == 1 else None
    if isinstance(node, ast.Subscript):
        known = facts.once(all_collections, facts.bindings(node.value))
        return collection if known or _chooses_a_view(facts, node.slice) else None
    return collection if collection is not None and path_of(collection) is not None else None


def whole_of(facts: Facts, node: ast.expr) -> Place | None:
    """Return what a tensor is each element of, by the loop that binds its name."""
    *_, base = views(facts, node)
    whole = _iterated_by(facts, base, ast.For)
    path = path_of(whole) if whole is not None else None
    return Place(path, indexed=True) if path is not None else None


def _iterated_by(facts: Facts, node: ast.expr, kind: type[ast.AST]) -> ast.expr | None:
    """Return what the variable of a loop of some kind is each element of."""
    loop = _loop_of(facts, node) if isinstance(node, ast.Name) else None
    pairs = element_pairs(loop.target, loop.iter) if loop is not None and isinstance(loop, kind) else ()
    return next((of for each, of in pairs if path_of(each) == path_of(node)), None)


def _loop_of(facts: Facts, name: ast.Name) -> ast.For | ast.comprehension | None:
    """Return the loop that binds a name where it is read, which nothing else binds there."""
    bound = facts.tree.bound(name)
    bindings = reaching(facts.tree, name, bound) if facts.once(_any_loop, bound) else ()
    loop = bindings[0].node if len(bindings) == 1 else None
    return loop if isinstance(loop, (ast.For, ast.comprehension)) else None


def _any_loop(_facts: Facts, bindings: Sequence[Binding]) -> bool:
    return any(isinstance(each.node, (ast.For, ast.comprehension)) for each in bindings)


def _converts(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=attr), args=[]):
            return attr in METHODS["convert"]
        case ast.Call(func=ast.Attribute(attr="type")):
            return True
    return False


def _chooses_a_view(facts: Facts, index: ast.expr) -> bool:
    """Return whether an index selects a view; a tensor or list as an index makes a copy."""
    match index:
        case ast.Slice() | ast.UnaryOp(op=ast.USub()):
            return True
        case ast.Constant(value=value):
            return value is None or value is Ellipsis or type(value) is int
        case ast.Tuple(elts=elements):
            return all(_chooses_a_view(facts, element) for element in elements)
        case ast.Name():
            return facts.kinds.of(index).are(NUMBERS)
    return False


def _model_of(facts: Facts, node: ast.expr) -> str | None:
    """Return the model that a tensor is a parameter of: `layer.weight`, or an element of its parameters."""
    match node:
        case ast.Attribute(attr="weight" | "bias", value=value):
            owner = path_of(value)
            return None if owner == "self" else owner
        case ast.Name() if (loop := _loop_of(facts, node)) is not None:
            for target, iterated in element_pairs(loop.target, loop.iter):
                if any(isinstance(each, ast.Name) and each.id == node.id for each in walk(target)):
                    return _iterated(facts, iterated)
        case ast.Subscript(value=ast.Call() as iterated) | (ast.Call() as iterated):
            return _iterated(facts, iterated) if last_name(iterated.func) in FUNCTIONS["iterate"] else None
    return None


def _iterated(facts: Facts, node: ast.expr) -> str | None:
    """Return the model whose parameters, or the entries of whose state, an expression iterates over."""
    for source in Sources(facts, How.BOUND | How.ELEMENT, _HOPS).of(node):
        match source.node:
            case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr in METHODS["hold"]:
                return path_of(value)
    return None


def _state_on_cpu(outer: ast.expr) -> Copy | None:
    """Return the copy that `model.cpu().state_dict()` is: its tensors stay on the CPU."""
    match outer:
        case ast.Call(func=ast.Attribute(attr="state_dict", value=ast.Call() as call)) if last_name(
            call.func
        ) == "cpu" and (path := path_of(moved(call))):
            return Copy(call, outer, _parameters_of(path), moved(call))
    return None


def _returned(facts: Facts, node: ast.expr) -> Copy | None:
    """Return the copy that a function or property of the module returns, of an argument or an attribute."""
    if isinstance(node, ast.Call) and last_name(node.func) == "next":
        node = next(iter(node.args), node)
    for call, own, copies in _results(facts, node, _copies):
        for copy in copies:
            if places := list(passed(facts, call, own, copy.source)):
                return replace(copy, source=places[0])
    return None


def _places(facts: Facts, function: Scope) -> list[Place]:
    """Return the tensor that a function is shown to return, if it returns only one."""
    values, _ = facts.once(results, function)
    inner = place_of(facts, values[0], calls=False) if len(values) == 1 else None
    return [inner] if inner is not None else []


def _copies(facts: Facts, function: Scope) -> list[Copy]:
    """Return the copies that a function may return."""
    values = (each for value in facts.once(results, function)[0] for each, _ in contents(facts, value))
    return [copy for each in values if (copy := copy_of(facts, each, calls=False)) is not None]


def _results(
    facts: Facts, node: ast.expr, wanted: Callable[[Facts, Scope], list[Result]]
) -> Iterator[tuple[ast.Call, Function, list[Result]]]:
    """Yield what is wanted of what a call, or the read of a property as one, returns, with the function."""
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    own = Steps(facts).reached(call, lambda each: facts.once(wanted, facts.tree.scopes[each]))
    if isinstance(own, ast.FunctionDef) and is_property(own) is not isinstance(node, ast.Call):
        yield call, own, facts.once(wanted, facts.tree.scopes[own])


def passed(facts: Facts, call: ast.AST, function: Function | ast.ClassDef, inner: Place) -> Iterator[Place]:
    """Yield the tensors of a caller that a parameter of a function, or a part of one, or a variable is."""
    name = root(inner.path)
    found = facts.tree.scope(getattr(call, "func", call)).lookup(name)
    if found is not None and found == facts.tree.scopes[function].lookup(name):
        yield inner  # it is a variable of the caller
    if isinstance(call, ast.Call) and not isinstance(function, ast.ClassDef):
        for given in given_to(facts, call, function, name):
            if (place := place_of(facts, given, calls=False)) is not None:
                path = place.path + inner.path.removeprefix(name)
                parameters = place.parameters or inner.parameters
                trained = inner.trained or _is_trained(facts, given)
                yield replace(inner, path=path, parameters=parameters, trained=trained)


def given_to(facts: Facts, call: ast.Call, function: Function, name: str) -> Sequence[ast.expr]:
    """Return what a call passes for a parameter of a function of the module, also for `self` or `**kw`."""
    names = [each.arg for each in positional(facts.tree, function)]
    match function.args:
        case ast.arguments(kwarg=ast.arg(arg=rest)) if rest == name:
            return [given.value for given in call.keywords if given.arg not in names]
        case ast.arguments(vararg=ast.arg(arg=rest)) if rest == name:
            return call.args[len(names) :]
        case ast.arguments(args=[ast.arg(arg=first), *_]) if first == name and name not in names:
            return [receiver(call.func)]
    return list(filter(None, [argument_of(call, *described(facts.tree, function, name)[1])]))
