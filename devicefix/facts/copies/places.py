"""Places that are copied or changed: names and paths."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from devicefix.facts.copies.dtypes import unconverted
from devicefix.facts.copies.expressions import constant_key, in_place, viewed
from devicefix.facts.copies.moves import moves, numpy_array
from devicefix.facts.flow import path_of
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding
from devicefix.facts.values import last_name

_IN_TORCH = re.compile(r"torch\.[a-z_]+")  # the functions of torch itself return tensors
_LIBRARY = re.compile(r"(torch|numpy)(\.|\Z)")
_OF_ARRAYS = ("torch.from_numpy", "torch.as_tensor")
_PARAMETERS = {"parameters", "named_parameters", "buffers", "named_buffers"}


@dataclass(frozen=True, slots=True)
class Place:
    """What is copied, or changed: a name or a dotted path, with constant keys (`batch['image']`).

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
    """Return the place that an expression is, through views and moves."""
    indexed = buffer = converted = False
    while True:
        if isinstance(node, ast.Call) and node.args and facts.call(node, *_OF_ARRAYS):
            # An array of an unknown dtype is mostly one of pixels, which `float()` copies.
            if converted or not _shares_array(facts, node):
                return None
            buffer = True
            node = node.args[0]
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if moves(facts, node) or in_place(node.func.attr):
                node = node.func.value
                continue
        if isinstance(node, ast.Subscript) and not constant_key(node):
            if not _chooses_a_view(facts, node.slice):
                return None
            indexed = indexed or not isinstance(node.slice, (ast.Slice, ast.Tuple))
        elif (path := path_of(node)) is not None:
            return None if _in_library(facts, node) else Place(path, indexed, buffer=buffer)
        inner = viewed(node)
        converted = converted or inner is None
        inner = inner or unconverted(facts, node)
        if inner is None:
            return None
        node = inner


def _in_library(facts: Facts, node: ast.expr) -> bool:
    """Return whether a path is that of a module: `torch.flatten(x)` is no view of `torch`."""
    return _LIBRARY.match(facts.resolve(node) or "") is not None


def _shares_array(facts: Facts, call: ast.Call) -> bool:
    """Return whether a tensor that is made of a NumPy array shares its memory."""
    if facts.call(call, "torch.from_numpy"):
        return True
    return not call.keywords and numpy_array(facts, call.args[0])


def places_of(facts: Facts, base: ast.expr) -> Iterator[Place]:
    """Return the places of a copied expression: its own, and that of what a loop variable comes from."""
    place = place_of(facts, base)
    if place is None:
        return
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
    scope = next((facts.tree.scope(inner) for inner in ast.walk(node)
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
        if node.func.id in ("list", "sorted", "enumerate", "tqdm", "tuple", "reversed"):
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
