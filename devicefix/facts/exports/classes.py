"""Find the bases of a file's classes, and which of them have a `cuda` or `to` of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, dotted


def bases_of(classes: Iterable[ast.ClassDef]) -> dict[str, tuple[str, ...]]:
    """Return the bases of classes by their names; several classes may have one name."""
    found: dict[str, tuple[str, ...]] = {}
    for node in classes:
        found[node.name] = (*found.get(node.name, ()), *filter(None, map(dotted, node.bases)))
    return found


def own_method(facts: Facts, node: ast.ClassDef, name: str) -> bool:
    """Return whether a class has a method by its own code: in its body, or by `__getattr__`."""
    scope = facts.tree.scopes[node]
    if any(_is_method(binding) for binding in scope.bindings.get(name, ())):
        return True
    return any(
        _answers(binding.node, name)
        for hook in ("__getattr__", "__getattribute__")
        for binding in scope.bindings.get(hook, ())
    )


def only_moves(facts: Facts, node: ast.ClassDef) -> bool:
    """Return whether the `cuda` of a class moves what the object holds, and does nothing else."""
    bindings = facts.tree.scopes[node].bindings.get("cuda", ())
    methods = [binding.node for binding in bindings if isinstance(binding.node, ast.FunctionDef)]
    return (
        bool(methods)
        and len(methods) == len(bindings)
        and all(all(map(_is_move, method.body)) for method in methods)
    )


def _is_move(statement: ast.stmt) -> bool:
    """Return whether a statement only moves something, or returns it."""
    match statement:
        case ast.If(body=body, orelse=more) | ast.For(body=body, orelse=more):
            return all(map(_is_move, (*body, *more)))
        case ast.Pass() | ast.Return() | ast.Raise() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=value) | ast.Assign(value=value) | ast.AnnAssign(value=value):
            return value is not None and any(map(_moves, ast.walk(value)))
    return False


def _moves(node: ast.AST) -> bool:
    """Return whether a node is a method that moves, such as `x.cuda` and `torch.Tensor.cuda`."""
    return isinstance(node, ast.Attribute) and node.attr in ("cuda", "to", "_apply")


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
    return any(
        (isinstance(node, ast.Constant) and node.value == name)
        or (isinstance(node, (ast.Lambda, ast.FunctionDef)) and node is not hook)
        for node in ast.walk(hook)
    )


def adds_cuda_method(facts: Facts) -> bool:
    """Return whether a function is stored under the name `cuda` elsewhere than in the body of a class.

    That is an attribute (`Batch.cuda = move`, also by `setattr`), or an item of what becomes a namespace
    (`type("Batch", (), {"cuda": move})`).
    """
    for path, bindings in facts.tree.attributes.items():
        if path.endswith(".cuda") and any(_is_function(facts, binding.value) for binding in bindings):
            return True
    for node in facts.tree.nodes_with("cuda"):
        match node:
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value="cuda"), value]):
                stored: list[ast.expr | None] = [value]
            case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value="cuda"))], value=value):
                stored = [value]
            case ast.Assign(targets=[ast.Attribute(attr="cuda")], value=value):
                stored = [value]
            case ast.Dict(keys=keys, values=values):
                stored = [value for key, value in zip(keys, values, strict=True) if _is_cuda(key)]
            case ast.Call(keywords=keywords):
                stored = [keyword.value for keyword in keywords if keyword.arg == "cuda"]
            case _:
                continue
        if any(_is_function(facts, value) for value in stored):
            return True
    return False


def _is_cuda(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and key.value == "cuda"


def _is_function(facts: Facts, value: ast.expr | None) -> bool:
    """Return whether a value is a function of the module, or made of one: `partial(f)`, `property(f)`."""
    match value:
        case ast.Lambda():
            return True
        case ast.Name(id=name):
            found = facts.tree.scope(value).lookup(name)
            return found is not None and any(
                isinstance(binding.node, (ast.FunctionDef, ast.AsyncFunctionDef))
                or isinstance(binding.value, ast.Lambda)
                for binding in found[1]
            )
        case ast.Attribute(attr=name):
            return any(name in scope.bindings for scope in facts.tree.scopes.values() if scope.is_class)
        case ast.Call(args=arguments):
            return any(_is_function(facts, argument) for argument in arguments)
    return False
