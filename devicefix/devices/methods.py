"""The `cuda` method that a call reaches: torch's, or one that the project defines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import Enum

from devicefix.devices.context import Context
from devicefix.facts.flow.kinds import Kind
from devicefix.facts.flow.kinds.library import SAME
from devicefix.facts.flow.reaching import blocks_around, position, reaching
from devicefix.facts.scopes import COMPREHENSIONS, PERHAPS, Scope
from devicefix.facts.values import last_name

# What makes a storage: `x.untyped_storage()`, its name for `getattr`, `torch.ByteStorage(…)`.
_STORAGE = re.compile(
    r"""[."'](untyped_|typed_)?storage\b|\b(Typed|Untyped|Float|Double|Half|BFloat16|Long|Int|Short|Char|Byte|Bool)Storage\b"""
)
_OWN = {Kind.MODULE, Kind.OBJECT}


class CustomCuda(Enum):
    """An answer to whether `x.cuda()` reaches a method that the project defines, or `.to(device)` would."""

    NEVER = 0
    MAYBE = 1
    ALWAYS = 2


def custom_cuda(context: Context, receiver: ast.expr) -> CustomCuda:
    """Return whether the class of a receiver defines or inherits a `cuda` or `to` method of the project.

    Where no class of the project does, all objects with `cuda` are torch's. Else only what is shown to be a
    tensor or an instance of another class has torch's methods.
    """
    project = context.project
    if not project.has_own_cuda():
        return CustomCuda.NEVER
    if isinstance(receiver, ast.Name) and receiver.id == "self":
        return _of_self(context, receiver)
    if isinstance(receiver, ast.Name) and project.is_cuda_class(receiver.id):
        found = context.facts.tree.scope(receiver).lookup(receiver.id)
        if found is not None and all(isinstance(binding.node, ast.ClassDef) for binding in found[1]):
            return _of_class(context, receiver.id)  # a method of the class itself
    kinds = context.facts.kinds.of(receiver).without(Kind.NONE)  # which has neither method
    names = {name.rpartition(".")[2] for name in kinds.classes}
    if names and all(map(project.is_cuda_class, names)) and kinds.are(_OWN):
        return CustomCuda.ALWAYS if all(map(project.is_always_cuda_class, names)) else CustomCuda.MAYBE
    if any(map(project.may_be_own, names)):
        return CustomCuda.MAYBE
    if not kinds.are({Kind.TENSOR, *_OWN}):
        is_other = not project.adds_cuda() and any(map(project.is_never_own, _shown(context, receiver)))
        return CustomCuda.NEVER if is_other else CustomCuda.MAYBE
    added = project.adds_cuda() and not all(name.startswith("torch.") for name in kinds.classes)
    return CustomCuda.MAYBE if added else CustomCuda.NEVER


def _shown(context: Context, receiver: ast.expr) -> Iterator[str]:
    """Yield the methods that the object of a receiver certainly has, each as a pattern of its definition."""
    facts, tree = context.facts, context.facts.tree
    call = tree.call_of(tree.parents.get(receiver))
    if call is not None and (call.args or call.keywords):
        yield r"cuda(?!\(self\))"
    method = getattr(receiver, "func", None)
    if isinstance(method, ast.Attribute) and method.attr in SAME and facts.resolve(method) is None:
        yield method.attr
    scope, bindings = tree.lookup(receiver) or (None, ())
    end, blocks = position(receiver), set(map(id, blocks_around(tree, tree.statement(receiver))))
    for read in facts.reads_in(scope, last_name(receiver)) if scope is not None else ():
        match tree.parents[read]:
            case ast.Attribute(attr=name) as method if tree.call_of(method):
                is_before = position(read) < end and id(tree.block(tree.statement(read))) in blocks
                is_same = is_before and reaching(tree, read, bindings) == reaching(tree, receiver, bindings)
                yield from [name] if is_same and not any(tree.around(read, *PERHAPS)) else ()


def shows_class(context: Context, site: ast.AST) -> bool:
    """Return whether the lack of a `cuda` leads to a handler, which a fix may skip."""
    refusals = context.facts.guards.refusals
    errors = (AttributeError.__name__, NameError.__name__)
    places = _with_lambdas(context, site)
    if not any(refusals.handlers(place, error) for place in places for error in errors):
        return False  # the project is asked last: a file is checked again where an answer of it differs
    return context.project.has_own_to() or context.project.has_own_cuda()


def _with_lambdas(context: Context, site: ast.AST) -> Iterator[ast.AST]:
    """Yield a node, and the lambdas around it in its function: what they raise may be caught around them."""
    yield site
    scope: Scope | None = context.facts.tree.scope(site)
    while scope is not None and isinstance(scope.node, (ast.Lambda, *COMPREHENSIONS)):
        if isinstance(scope.node, ast.Lambda):
            yield scope.node
        scope = scope.parent


def may_be_storage(context: Context, receiver: ast.expr) -> bool:
    """Return whether a receiver may be a storage, which rejects `.to(device)`.

    Where its kind is not known, the first parameter of a `map_location` is one, and in a module that makes
    storages, any value may be.
    """
    source = context.source
    if source.holds("torage"):
        answer = context.facts.kinds.of(receiver).can_be(Kind.STORAGE)
        if answer is not None or source.holds(_STORAGE):
            return answer is not False
    return "storage" in last_name(receiver) or (source.holds("load") and _is_located(context, receiver))


def _is_located(context: Context, receiver: ast.expr) -> bool:
    """Return whether a receiver is a parameter of a function that is passed as a `map_location`."""
    tree = context.facts.tree
    found = tree.lookup(receiver)
    if found is None or not found[1][0].parameter:
        return False
    function = found[0].node
    uses = tree.reads(function.name) if isinstance(function, ast.FunctionDef) else [function]
    return any(
        (isinstance(parent, ast.keyword) and parent.arg == "map_location")
        or (isinstance(parent, ast.Call) and use in parent.args[1:] and last_name(parent.func) == "load")
        for use, parent in ((use, tree.parents[use]) for use in uses)
    )


def _of_class(context: Context, name: str) -> CustomCuda:
    """Return the answer for a class of a name that some class with its own `cuda` has."""
    return CustomCuda.ALWAYS if context.project.is_always_cuda_class(name) else CustomCuda.MAYBE


def _of_self(context: Context, receiver: ast.Name) -> CustomCuda:
    owner = next(context.facts.tree.around(receiver, ast.ClassDef), None)
    if owner is None:
        return CustomCuda.MAYBE
    project = context.project
    if project.is_cuda_class(owner.name):
        return _of_class(context, owner.name)
    return CustomCuda.MAYBE if project.adds_cuda() or project.may_be_own(owner.name) else CustomCuda.NEVER
