"""Find the bases of a file's classes, and which of them have a `cuda` or `to` of their own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.facts.exports.export import of_bytes, of_facts
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, Function, dotted
from devicefix.facts.tree import walk
from devicefix.facts.values import is_constant, last_name

_CLASS = re.compile(rb"\n[ \t]*class[ \t]+(\w+)[ \t]*(?:\[[^\n]*?\][ \t]*)?(?:\(([^()]*)\)[ \t]*)?:")
_BASE = re.compile(r"[\w.]+(?=\s*(?:\[|\Z))")
_MOVES = ("cuda", "to", "_apply")
_VIEWS = ("detach", "contiguous", "eval", "train", "requires_grad_", "items", "values")
_OBJECTS = ("super", "getattr", "get", "pop", "next", "copy", "deepcopy")
_OWN_CUDA = rb"def cuda\b|\n[ \t]+cuda[ \t]*[:=]|import[^\n]*\bcuda\b|__getattr"


@of_bytes(b"class ")
def bases_of(data: bytes) -> dict[str, tuple[str, ...]]:
    """Return the bases of a file's classes by their names; several classes may have one name."""
    found: dict[str, tuple[str, ...]] = {}
    for name, bases in _CLASS.findall(b"\n" + data):
        listed = (_BASE.match(base.strip()) for base in bases.decode(errors="replace").split(","))
        found[name.decode()] = (*found.get(name.decode(), ()), *(base[0] for base in listed if base))
    return found


@of_facts(b"cuda", b"__getattr", pattern=_OWN_CUDA)
def cuda_classes(facts: Facts) -> frozenset[str]:
    """Return the classes that define a method `cuda`, or have one by `__getattr__`."""
    return frozenset(node.name for node in _classes(facts) if own_method(facts, node, "cuda"))


@of_facts(b"cuda", b"__getattr", pattern=_OWN_CUDA)
def mixed_classes(facts: Facts) -> frozenset[str]:
    """Return those of them whose name another class has that does neither."""
    others = (node.name for node in _classes(facts) if not own_method(facts, node, "cuda"))
    return cuda_classes(facts).intersection(others)


@of_facts(b"def to(", b"__getattr", anywhere=True)
def to_classes(facts: Facts) -> frozenset[str]:
    """Return the other classes that define a method `to`."""
    own = (node.name for node in _classes(facts) if own_method(facts, node, "to"))
    return frozenset(own) - cuda_classes(facts)


@of_facts(b"cuda", pattern=_OWN_CUDA)
def has_effects(facts: Facts) -> bool:
    """Return whether a class has a `cuda` that may do more than move what the object holds."""
    return any(_has_effect(facts, node) for node in _classes(facts))


@of_facts(b"cuda", pattern=_OWN_CUDA)
def returns_nothing(facts: Facts) -> bool:
    """Return whether a class has a `cuda` that returns nothing, and does not only raise an error."""
    bindings = (each for node in _classes(facts) for each in facts.tree.scopes[node].bindings.get("cuda", ()))
    methods = (each.node for each in bindings if isinstance(each.node, ast.FunctionDef))
    return any(not isinstance(each.body[-1], ast.Raise) and not any(_returned(each)) for each in methods)


@of_bytes(b"def get_device(")
def defines_get_device(data: bytes) -> bool:
    """Return whether a function or method is called `get_device`, as a method of tensors is."""
    return b"def get_device(" in data


def _classes(facts: Facts) -> list[ast.ClassDef]:
    return [node for node in facts.tree.scopes if isinstance(node, ast.ClassDef)]


def own_method(facts: Facts, node: ast.ClassDef, name: str) -> bool:
    """Return whether a class has a method by its own code: in its body, or by `__getattr__`."""
    bindings = facts.tree.scopes[node].bindings
    hooks = (*bindings.get("__getattr__", ()), *bindings.get("__getattribute__", ()))
    return any(map(_is_method, bindings.get(name, ()))) or any(_answers(hook.node, name) for hook in hooks)


def _has_effect(facts: Facts, node: ast.ClassDef) -> bool:
    """Return whether the method `cuda` of a class does more than move what an object holds, and return it."""
    for binding in facts.tree.scopes[node].bindings.get("cuda", ()):
        match binding.node, binding.value:
            case ast.FunctionDef(args=arguments, body=body) as method, _:
                returned = list(_returned(method))
            case _, ast.Lambda(args=arguments, body=value):
                body, returned = [], [value]
            case _:
                continue
        own = next((each.arg for each in (*arguments.posonlyargs, *arguments.args)), "self")
        objects = all(_is_object(facts, each, own, node.name) for each in returned)
        parts = (part for each in (*body, *returned) for part in walk(each))
        if not objects or not all(map(_is_move, body)) or any(map(_computes, parts)):
            return True
    return False


def _returned(method: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield what a method returns, and its `yield` expressions."""
    for node in ast.walk(method):
        if isinstance(node, ast.Yield | ast.YieldFrom):
            yield node
        elif isinstance(node, ast.Return) and node.value is not None:
            yield node.value


def _is_object(facts: Facts, value: ast.expr, own: str, owner: str) -> bool:
    """Return whether a value is an object, a copy, another of its class, or what torch's method returns."""
    match facts.value(value) or value:
        case ast.Name(id=name):
            return name == own
        case ast.Call(func=ast.Name(id=name) as function):
            return name == owner or _is_class(facts.value(function))
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")))):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr) as function):
            return (name == own and attr in _MOVES) or attr in ("copy", "deepcopy") or _is_class(function)
        case ast.Call(func=function):
            return _is_class(function)
    return False


def _is_class(node: ast.expr | None) -> bool:
    """Return whether an expression is the class of an object: `type(self)`, `self.__class__`."""
    match node:
        case ast.Call(func=ast.Name(id="type"), args=[_]) | ast.Attribute(attr="__class__"):
            return True
    return False


def _is_move(statement: ast.stmt) -> bool:
    """Return whether a statement only moves something, returns the object, or binds a local name."""
    match statement:
        case ast.If(body=body, orelse=more) | ast.For(body=body, orelse=more):
            return all(map(_is_move, (*body, *more)))
        case ast.Pass() | ast.Return() | ast.Raise() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign([ast.Name()]) | ast.Assign([ast.Subscript(ast.Name())], ast.Name() | ast.Attribute()):
            return True
        case ast.Expr(value=value) | ast.Assign(value=value) | ast.AnnAssign(value=value):
            return value is not None and any(map(_moves, walk(value)))
    return False


def _moves(node: ast.AST) -> bool:
    """Return whether a node is a method that moves, such as `x.cuda` and `torch.Tensor.cuda`."""
    return isinstance(node, ast.Attribute) and node.attr in _MOVES


def _computes(node: ast.AST) -> bool:
    """Return whether a node computes what is moved, or with it: `f(x).cuda()`, `x.cuda() * 2`."""
    match node:
        case ast.BinOp(left=left, right=right):
            return isinstance(left, ast.Call) or isinstance(right, ast.Call)
        case ast.Subscript(value=ast.Call(func=function)):
            return _moves(function)
        case ast.Call(func=ast.Attribute(attr=attr, value=ast.Call(func=function))):
            if attr in _MOVES:
                return last_name(function) not in (*_MOVES, *_VIEWS, *_OBJECTS)
            return attr not in _VIEWS and _moves(function)
    return False


def _is_method(binding: Binding) -> bool:
    """Return whether what a class body binds may be a method: no property, no flag, no field."""
    match binding.node:
        case ast.FunctionDef(decorator_list=decorators) | ast.AsyncFunctionDef(decorator_list=decorators):
            return not any((dotted(each) or "").endswith("property") for each in decorators)
        case ast.AnnAssign(value=None) | ast.ClassDef():
            return False
    return not isinstance(binding.value, ast.Constant)


def _answers(hook: ast.AST, name: str) -> bool:
    """Return whether `__getattr__` may make a method: it compares names, or defines functions.

    One that only passes the name on to another object has both `cuda` and `to`, or neither.
    """
    _, *inside = ast.walk(hook)
    return any(is_constant(each, name) or isinstance(each, (ast.Lambda, ast.FunctionDef)) for each in inside)


@of_facts(
    b"cuda",
    pattern=(  # each begins with a text, so that it is found several times as fast
        rb"""cuda(?:(?<=\bcuda)[ \t]*=(?!=)|(?<=["']cuda)["'][ \t]*:|(?<=\[["']cuda)["']\][ \t]*=)"""
        rb"""|setattr\([^\n]*cuda["']"""
    ),
)
def adds_cuda_method(facts: Facts) -> bool:
    """Return whether a function is stored under the name `cuda` elsewhere than in the body of a class.

    That is an attribute (`Batch.cuda = move`, also by `setattr`), or an item of what becomes a namespace
    (`type("Batch", (), {"cuda": move})`).
    """
    paths = facts.tree.paths_by_name.get("cuda", ())
    stored = [binding.value for path in paths for binding in facts.tree.attributes[path]]
    for node in facts.tree.nodes_with("cuda"):
        match node:
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value="cuda"), value]):
                stored.append(value)
            case (
                ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value="cuda"))], value=value)
                | ast.Assign(targets=[ast.Attribute(attr="cuda")], value=value)
            ):
                stored.append(value)
            case ast.Dict(keys=keys, values=values):
                stored += [value for key, value in zip(keys, values, strict=True) if is_constant(key, "cuda")]
            case ast.Call(keywords=keywords):
                stored += [keyword.value for keyword in keywords if keyword.arg == "cuda"]
    return any(_is_function(facts, value) for value in stored)


def _is_function(facts: Facts, value: ast.expr | None) -> bool:
    """Return whether a value is a function of the module, or made of one: `partial(f)`, `property(f)`."""
    match value:
        case ast.Lambda():
            return True
        case ast.Name():
            return any(
                isinstance(binding.node, Function) or isinstance(binding.value, ast.Lambda)
                for binding in facts.tree.bound(value)
            )
        case ast.Attribute(attr=name):
            return any(name in scope.bindings for scope in facts.tree.scopes.values() if scope.is_class)
        case ast.Call(args=arguments):
            return any(_is_function(facts, argument) for argument in arguments)
    return False
