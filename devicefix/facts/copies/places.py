"""Places that are copied or changed: names and paths."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from devicefix.facts.copies.dtypes import dtypes_of, unconverted
from devicefix.facts.copies.expressions import choices, constant_key, in_place, viewed
from devicefix.facts.copies.inside import bound_inside
from devicefix.facts.copies.moves import is_tensor, moved, moves, shares_memory
from devicefix.facts.flow.order import path_of
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding
from devicefix.facts.tree import walk
from devicefix.facts.values import last_name

_IN_TORCH = re.compile(r"torch\.[a-z_]+")  # the functions of torch itself return tensors
_LIBRARY = re.compile(r"(torch|numpy)(\.|\Z)")
_OF_ARRAYS = ("torch.from_numpy", "torch.as_tensor", "torch.asarray")
_DEPTH = 4  # choices in choices
_PARAMETERS = {"parameters", "named_parameters", "buffers", "named_buffers"}


@dataclass(frozen=True, slots=True)
class Place:
    """A place that is copied, or changed: a name or a dotted path, with constant keys (`batch['image']`).

    `indexed` is set for a part of it that is chosen by a plain index, which may be an element of a list.
    `parameters` means those of a module, `buffer` a NumPy array, `trained` a tensor of an optimizer.
    """

    path: str
    indexed: bool = False
    parameters: bool = False
    buffer: bool = False
    trained: bool = False


def parameters_of(path: str) -> Place:
    """Return the parameters of the module at a path, which may be wrapped for several GPUs."""
    return Place(path.removesuffix(".module"), parameters=True)


def place_of(facts: Facts, node: ast.expr) -> Place | None:
    """Return the place that an expression is, through views and moves; the first one of a choice."""
    return next(_places(facts, node), None)


def _places(facts: Facts, node: ast.expr, converted: bool = False, depth: int = _DEPTH) -> Iterator[Place]:
    """Return the places that an expression may be, through views and moves."""
    indexed = buffer = False
    while True:
        found = choices(node) or bound_inside(facts, node)
        if found is not None:
            for inner in found if depth else ():
                for place in _places(facts, inner, converted, depth - 1):
                    yield replace(place, indexed=place.indexed or indexed, buffer=place.buffer or buffer)
            return
        if (path := path_of(node)) is not None:
            if not _in_library(facts, node):
                yield Place(path, indexed, buffer=buffer)
            return
        inside, copies = _one_inside(facts, node, converted)
        if inside is None:
            return
        if isinstance(node, ast.Subscript):
            indexed = indexed or not isinstance(node.slice, (ast.Slice, ast.Tuple))
        elif _made_of_array(facts, node):
            buffer = buffer or not is_tensor(facts, inside)
        node, converted = inside, converted or copies


def _one_inside(facts: Facts, node: ast.expr, converted: bool) -> tuple[ast.expr | None, bool]:
    """Return what an expression is a view or move of, and whether it may be a copy in another dtype."""
    match node:
        case ast.Call() if _made_of_array(facts, node):
            # An array of an unknown dtype is mostly one of pixels, which `float()` copies.
            shared = not converted and (facts.call(node, "torch.from_numpy") or shares_memory(facts, node))
            return (node.args[0] if shared else None), False
        case ast.Call() if moves(facts, node):
            return moved(facts, node), False
        case ast.Call(func=ast.Attribute(attr=attr, value=value)) if in_place(attr):
            return value, False
        case ast.Subscript(slice=index) if not constant_key(node) and not _chooses_a_view(facts, index):
            return None, False
    inner = viewed(node)
    if inner is not None:
        return inner, False
    inner = unconverted(facts, node)
    return inner, inner is not None and dtypes_of(facts, inner) <= {None}


def _made_of_array(facts: Facts, node: ast.expr) -> bool:
    """Return whether an expression is a tensor made of an array, or of another tensor."""
    return isinstance(node, ast.Call) and bool(node.args) and facts.call(node, *_OF_ARRAYS)


def _in_library(facts: Facts, node: ast.expr) -> bool:
    """Return whether a path is that of a module: `torch.flatten(x)` is no view of `torch`."""
    return _LIBRARY.match(facts.resolve(node) or "") is not None


def places_of(facts: Facts, base: ast.expr) -> Iterator[Place]:
    """Return the places of a copied expression: its own, and that of what a loop variable comes from."""
    for place in _places(facts, base):
        yield from _with_owners(facts, base, place)
    iterated = _element_of(base)
    if iterated is not None:
        yield from _elements(facts, iterated)


def _element_of(node: ast.expr) -> ast.expr | None:
    """Return the iterable that an expression takes an element of, as `next(x)` and `list(x)[0]` do."""
    while True:
        match node:
            case ast.Call(func=ast.Name(id="next"), args=[iterated, *_]):
                return iterated
            case ast.Subscript(value=ast.Call(func=ast.Name(id="list" | "tuple")) as iterated):
                return iterated
        inner = viewed(node)
        if inner is None:
            return None
        node = inner


def _with_owners(facts: Facts, base: ast.expr, place: Place) -> Iterator[Place]:
    """Return a place, and what it is a part of: that of a loop variable, or the module of a weight."""
    loop = _loop(facts, base, place.path)
    if not isinstance(loop, ast.comprehension):
        yield place
    owner, _, attribute = place.path.rpartition(".")
    if attribute in ("weight", "bias") and owner not in ("", "self"):
        yield Place(owner, parameters=True)
    if loop is not None:
        yield from _elements(facts, _iterated(loop, place.path))


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
            found = facts.tree.scope(index).lookup(index.id)
            return found is not None and all(_binds_numbers(binding.node) for binding in found[1])
    return False


def _binds_numbers(node: ast.AST) -> bool:
    """Return whether a node is a loop whose variables are numbers."""
    if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, ast.Call):
        return last_name(node.iter.func) in ("range", "enumerate", "trange")
    return False


def _loop(facts: Facts, node: ast.expr, name: str) -> ast.For | ast.comprehension | None:
    """Return the loop that binds the name that an expression is a view of."""
    scope = next((facts.tree.scope(inner) for inner in walk(node)
                  if isinstance(inner, ast.Name) and inner.id == name), None)  # fmt: skip
    found = scope.lookup(name) if scope is not None else None
    if found is None or len(found[1]) != 1:
        return None
    loop = found[1][0].node
    return loop if isinstance(loop, (ast.For, ast.comprehension)) else None


def _iterated(loop: ast.For | ast.comprehension, name: str) -> ast.expr:
    """Return what a variable of a loop is an element of."""
    match loop:
        case (ast.For() | ast.comprehension()) as found if isinstance(found.target, ast.Tuple):
            if isinstance(found.iter, ast.Call) and last_name(found.iter.func) == "zip":
                for target, argument in zip(found.target.elts, found.iter.args, strict=False):
                    if isinstance(target, ast.Name) and target.id == name:
                        return argument
    return loop.iter


def _elements(facts: Facts, node: ast.expr) -> Iterator[Place]:
    """Return the place of an iterable's elements: a module's parameters, or a collection that stays."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        if node.func.id in ("list", "sorted", "enumerate", "tqdm", "tuple", "reversed", "iter"):
            yield from _elements(facts, node.args[0])
        return
    if not isinstance(node, ast.Call):
        place = place_of(facts, node)
        if place is not None and lasting(facts, node):
            yield Place(place.path, indexed=True)
        return
    if not isinstance(node.func, ast.Attribute):
        return
    receiver: ast.expr | None = node.func.value
    if node.func.attr in ("items", "values"):
        receiver = _module_of_state(facts, node.func.value)
    elif node.func.attr not in _PARAMETERS:
        return
    place = place_of(facts, receiver) if receiver is not None else None
    if place is not None:
        yield parameters_of(place.path)


def _module_of_state(facts: Facts, node: ast.expr) -> ast.expr | None:
    """Return the module whose `state_dict()` an expression is."""
    value = node if isinstance(node, ast.Call) else facts.value(node)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.value if value.func.attr == "state_dict" else None
    return None


def lasting(facts: Facts, node: ast.expr) -> bool:
    """Return whether an expression is a tensor or collection, which has the same elements in every loop."""
    while (inner := viewed(node)) is not None:
        node = inner
    if isinstance(node, ast.Call):
        return moves(facts, node)
    return facts.once(_all_lasting, facts.bindings(node))


def _all_lasting(facts: Facts, bindings: Sequence[Binding]) -> bool:
    values = [binding.value for binding in bindings if not isinstance(binding.node, ast.AugAssign)]
    return bool(values) and all(
        isinstance(value, (ast.List, ast.Tuple, ast.ListComp))
        or (isinstance(value, ast.Call) and moves(facts, value))
        or (isinstance(value, ast.Call) and _IN_TORCH.fullmatch(facts.resolve(value.func) or "") is not None)
        for value in values
    )
