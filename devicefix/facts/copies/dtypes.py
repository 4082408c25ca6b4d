"""Types of tensors: whether an argument is a dtype or a device, and whether a conversion copies."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from devicefix.facts.copies.expressions import keyword, viewed
from devicefix.facts.copies.inside import values_of
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding
from devicefix.facts.values import last_name

_DTYPES = {
    "float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32",
    "short": "int16", "cfloat": "complex64", "cdouble": "complex128",
    **{name: name for name in ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64",
                               "uint8", "bool", "complex64", "complex128")},
}  # fmt: skip
_METHODS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64",
    "int": "int32", "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool",
}  # fmt: skip
_FLOATS = {"zeros", "ones", "rand", "randn", "empty", "eye", "linspace"}  # of torch's default dtype
_DEPTH = 4


def may_be_device(facts: Facts, node: ast.expr, depth: int = _DEPTH) -> bool:
    """Return whether the first argument of `to` may be a device, or a tensor on one: no dtype is."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, (str, int))
        case ast.IfExp(body=body, orelse=orelse):
            return may_be_device(facts, body, depth) or may_be_device(facts, orelse, depth)
        case ast.Attribute(attr="dtype"):
            return False
        case ast.Call(func=ast.Name(id="getattr"), args=[of, *_]) if facts.resolve(of) == "torch":
            return False
    if dtype_named(facts, node) is not None:
        return False
    found = facts.tree.scope(node).lookup(node.id) if isinstance(node, ast.Name) else None
    bindings = found[1] if found is not None else facts.bindings(node)
    return not bindings or not depth or facts.once(_any_device, bindings, depth - 1)


def _any_device(facts: Facts, bindings: Sequence[Binding], depth: int) -> bool:
    return any(_binds_device(facts, binding, depth) for binding in bindings)


def _binds_device(facts: Facts, binding: Binding, depth: int) -> bool:
    """Return whether a binding may bind a device."""
    if binding.parameter:
        annotation = getattr(binding.node, "annotation", None)
        if annotation is not None:
            text = ast.unparse(annotation)
            return "dtype" not in text or "device" in text
        return (
            binding.default is None or may_be_device(facts, binding.default, depth) or _none(binding.default)
        )
    return binding.value is None or may_be_device(facts, binding.value, depth)


def _none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def dtype_named(facts: Facts, node: ast.expr) -> str | None:
    """Return the dtype that an expression names, such as `float32` for `torch.float`."""
    module, _, name = (facts.resolve(node) or "").rpartition(".")
    return _DTYPES.get(name) if module in ("torch", "numpy") else None


def converts(facts: Facts, node: ast.expr, target: ast.expr | str) -> bool:
    """Return whether a tensor is known to have another dtype than the one that it is converted to."""
    wanted = target if isinstance(target, str) else dtype_named(facts, target)
    known = dtype_of(facts, node)
    return wanted is not None and known is not None and wanted != known


def unconverted(facts: Facts, node: ast.expr) -> ast.expr | None:
    """Return the tensor that a conversion such as `x.float()` may return itself, or None."""
    match node:
        case ast.Call(func=ast.Attribute(attr=attr, value=value), args=[]) if attr in _METHODS:
            return None if converts(facts, value, _METHODS[attr]) else value
    return None


def dtype_of(facts: Facts, node: ast.expr) -> str | None:
    """Return the dtype of a tensor or array, None where it is not known."""
    dtypes = dtypes_of(facts, node)
    return next(iter(dtypes)) if len(dtypes) == 1 else None


def dtypes_of(facts: Facts, node: ast.expr, depth: int = _DEPTH) -> set[str | None]:
    """Return the dtypes that a tensor or array may have, with None for one that is not known."""
    while True:
        if isinstance(node, ast.Call):
            if (made := _made_as(facts, node)) is not None:
                return {made}
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("cpu", "cuda", "clone"):
                node = node.func.value
                continue
            if (
                last_name(node.func) in ("from_numpy", "as_tensor", "asarray")
                and node.args
                and not node.keywords
            ):
                node = node.args[0]
                continue
        inner = viewed(node)
        if inner is None:
            break
        node = inner
    if not depth or not isinstance(node, (ast.Name, ast.Attribute)):
        return {None}
    found: set[str | None] = set()
    for value in values_of(facts, node):
        found |= {None} if value is None else dtypes_of(facts, value, depth - 1)
    return found


def _made_as(facts: Facts, node: ast.Call) -> str | None:
    """Return the dtype that a call makes a tensor or array of, None where the call does not show it."""
    name = facts.resolve(node.func)
    if name is None:
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in _METHODS and not node.args:
                return _METHODS[node.func.attr]
            if node.func.attr in ("type", "astype", "to") and node.args:
                return dtype_named(facts, node.args[-1])
        return None
    module, _, function = name.rpartition(".")
    dtype = keyword(node, "dtype")
    if dtype is not None:
        return dtype_named(facts, dtype)
    if module == "torch" and function in _FLOATS:
        return "float32"
    if module == "numpy" and function in ("zeros", "ones", "empty") and len(node.args) == 1:
        return "float64"
    if module == "torch" and function in ("arange", "tensor") and node.args:
        return _of_numbers(node.args[0])
    return None


def _of_numbers(node: ast.expr) -> str | None:
    """Return the dtype of a tensor of literal numbers."""
    numbers = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
    if not isinstance(node, (ast.List, ast.Constant)) or not numbers:
        return None
    if all(type(number) is int for number in numbers):
        return "int64"
    return "float32" if all(type(number) in (int, float) for number in numbers) else None
