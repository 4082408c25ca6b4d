"""Calls that copy on a GPU and return the same tensor on a CPU."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from devicefix.facts.copies.dtypes import converts, dtypes_of, may_be_device
from devicefix.facts.copies.expressions import keyword, names_cpu, viewed
from devicefix.facts.copies.inside import values_of
from devicefix.facts.flow.kinds import Kind
from devicefix.facts.module import Facts
from devicefix.facts.values import last_name

_FACTORIES = {
    "zeros", "ones", "empty", "full", "tensor", "rand", "randn", "arange", "from_numpy", "zeros_like",
    "FloatTensor", "LongTensor", "Tensor", "eye", "linspace", "randint", "ByteTensor", "IntTensor",
    "DoubleTensor",
}  # fmt: skip
_MAKERS = {"as_tensor", "asarray"}
_TYPES = {
    "FloatTensor": "float32", "DoubleTensor": "float64", "HalfTensor": "float16", "LongTensor": "int64",
    "IntTensor": "int32", "ShortTensor": "int16", "CharTensor": "int8", "ByteTensor": "uint8",
    "BoolTensor": "bool",
}  # fmt: skip


def moves(facts: Facts, node: ast.Call) -> bool:
    """Return whether a call moves a tensor, or a NumPy array, to a device and does nothing else to it."""
    if makes_tensor(facts, node):
        return _copies_to_gpu(facts, node)
    call = method_called(facts, node)
    if call is None:
        return False
    match call.func.attr:  # type: ignore[attr-defined]
        case "cpu" | "pin_memory":
            return not call.args
        case "cuda":
            return call is not node or facts.resolve(call.func) is None
        case "to":
            return _to_device(facts, call)
        case "type" | "type_as":
            return len(call.args) == 1 and _to_type(facts, call)
    return False


def method_called(facts: Facts, node: ast.Call) -> ast.Call | None:
    """Return a call of a method in its plain form, such as `x.cuda()` for `getattr(x, "cuda")()`, or None."""
    match node.func:
        case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(name)), *_]):
            return _plain(node, value, name, node.args)
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *given]) if (
            last_name(function) == "methodcaller" and len(node.args) == 1
        ):
            return _plain(node, node.args[0], name, given)
        case ast.Call(func=function, args=[ast.Attribute() as method, *given]) if (
            last_name(function) == "partial"
        ):
            inner = ast.Call(method, [*given, *node.args], [*node.func.keywords, *node.keywords])
            return method_called(facts, ast.copy_location(inner, node))
        case ast.Attribute(attr=name, value=value):
            if last_name(value) == "Tensor" and node.args and facts.resolve(value) == "torch.Tensor":
                return _plain(node, node.args[0], name, node.args[1:])
            spread = any(isinstance(given, ast.Starred) for given in node.args)
            if spread or any(given.arg is None for given in node.keywords):
                return _plain(node, value, name, node.args)
            return node
    return None


def _plain(node: ast.Call, value: ast.expr, name: str, given: Sequence[ast.expr]) -> ast.Call:
    """Return `value.name(...)` with the arguments of a call; displays with stars are written out."""
    args = [each for one in given for each in _spread(one)]
    keywords = []
    for one in node.keywords:
        if one.arg is None and isinstance(one.value, ast.Dict):
            pairs = zip(one.value.keys, one.value.values, strict=True)
            keywords += [
                ast.keyword(str(key.value), its) for key, its in pairs if isinstance(key, ast.Constant)
            ]
        elif one.arg is None and isinstance(one.value, ast.Call) and last_name(one.value.func) == "dict":
            keywords += one.value.keywords
        else:
            keywords.append(one)
    return ast.copy_location(ast.Call(ast.Attribute(value, name, ast.Load()), args, keywords), node)


def _spread(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Starred) and isinstance(node.value, (ast.List, ast.Tuple)):
        return node.value.elts
    return [node]


def makes_tensor(facts: Facts, node: ast.Call) -> bool:
    """Return whether a call makes a tensor of an array or a tensor, as `torch.as_tensor` does."""
    if not node.args:
        return False
    if last_name(node.func) in _MAKERS:
        return facts.call(node, "torch.as_tensor", "torch.asarray")
    return cuda_type(facts, node.func) is not None


def cuda_type(facts: Facts, node: ast.expr, depth: int = 4) -> str | None:
    """Return the dtype of a type of CUDA tensors, such as `float32` for `torch.cuda.FloatTensor`, or None.

    With its fix it is a choice: `torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor`.

    Args:
        facts: the facts of the module.
        node: the expression.
        depth: how many names and choices to follow; a name may be a choice between itself and another.
    """
    if not depth:
        return None
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            return cuda_type(facts, body, depth - 1) or cuda_type(facts, orelse, depth - 1)
        case ast.Constant(value=str(name)):
            return _dtype_of_type(name)
        case ast.Attribute(attr=attr, value=ast.IfExp(body=body)) if attr in _TYPES:
            return _dtype_of_type(f"{facts.resolve(body)}.{attr}")
        case ast.Attribute(attr=attr) if attr in _TYPES:
            return _dtype_of_type(facts.resolve(node) or "")
        case ast.Name():
            value = facts.value(node)
            name = facts.resolve(node) or ""
            return (
                cuda_type(facts, value, depth - 1) if isinstance(value, ast.IfExp) else _dtype_of_type(name)
            )
    return None


def _dtype_of_type(name: str) -> str | None:
    return _TYPES.get(name.removeprefix("torch.cuda.")) if name.startswith("torch.cuda.") else None


def _copies_to_gpu(facts: Facts, node: ast.Call) -> bool:
    """Return whether a call that makes a tensor copies to a GPU, and shares the memory on a CPU."""
    dtype = cuda_type(facts, node.func)
    if dtype is not None:
        return len(node.args) == 1 and dtype in dtypes_of(facts, node.args[0])
    device = keyword(node, "device")
    return device is not None and not names_cpu(device) and shares_memory(facts, node)


def shares_memory(facts: Facts, node: ast.Call) -> bool:
    """Return whether a tensor that a call makes on a CPU shares the memory of its argument."""
    if _true(keyword(node, "copy")) or keyword(node, "dtype") is not None:
        return False
    return numpy_array(facts, node.args[0]) or is_tensor(facts, node.args[0])


def is_tensor(facts: Facts, node: ast.expr) -> bool:
    """Return whether an expression may be a tensor, as one of its values is."""
    return facts.kinds.of(node).can_be(Kind.TENSOR) is True


def moved(facts: Facts, call: ast.Call) -> ast.expr:
    """Return what a call moves."""
    plain = None if makes_tensor(facts, call) else method_called(facts, call)
    return call.args[0] if plain is None else plain.func.value  # type: ignore[attr-defined]


def _to_type(facts: Facts, node: ast.Call) -> bool:
    """Return whether `type` or `type_as` moves a tensor to a GPU, and may return itself on a CPU."""
    value, target = node.func.value, node.args[0]  # type: ignore[attr-defined]
    if last_name(node.func) == "type_as":
        return _is_moved(facts, target)
    dtype = cuda_type(facts, target)
    return dtype is not None and not converts(facts, value, dtype)


def _is_moved(facts: Facts, node: ast.expr) -> bool:
    """Return whether a tensor is shown to have been moved to a GPU."""
    if isinstance(node, ast.Call):
        return cuda_type(facts, node.func) is not None or _moved(facts, node)
    return _all_there(facts, node, False)


def _to_device(facts: Facts, node: ast.Call) -> bool:
    """Return whether a call of `to` may move a tensor, and may return the tensor itself on a CPU."""
    if _true(keyword(node, "copy")):
        return False
    target = node.args[0] if node.args else keyword(node, "device")
    if target is None or not may_be_device(facts, target):
        return False
    dtype = node.args[1] if len(node.args) > 1 else keyword(node, "dtype")
    return dtype is None or not converts(facts, node.func.value, dtype)  # type: ignore[attr-defined]


def _true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value)


def goes_to_cpu(facts: Facts, call: ast.Call) -> bool:
    """Return whether a move is one to the CPU."""
    plain = method_called(facts, call) or call
    target = plain.args[0] if plain.args else keyword(plain, "device")
    return last_name(plain.func) == "cpu" or (target is not None and names_cpu(target))


def already_there(facts: Facts, call: ast.Call, base: ast.expr) -> bool:
    """Return whether a move of `base` does nothing on a GPU either, since the tensor is on that device."""
    to_cpu = goes_to_cpu(facts, call)
    node = base
    while True:
        if isinstance(node, ast.Call) and moves(facts, node) and isinstance(node.func, ast.Attribute):
            return False
        inner = viewed(node)
        if inner is None:
            break
        node = inner
    return _all_there(facts, node, to_cpu)


def _all_there(facts: Facts, node: ast.expr, to_cpu: bool) -> bool:
    """Return whether all values of a name are on a device already."""
    values = values_of(facts, node)
    return bool(values) and all(value is not None and is_there(facts, value, to_cpu) for value in values)


def is_there(facts: Facts, value: ast.expr, to_cpu: bool) -> bool:
    """Return whether a value is shown to be on the CPU, or to have been moved to a device."""
    return _made_on_cpu(facts, value) if to_cpu else _moved(facts, value)


def numpy_array(facts: Facts, node: ast.expr) -> bool:
    """Return whether an expression may be a NumPy array, or a view of one, also by a name."""
    while not _is_array(facts, node):
        inner = viewed(node)
        if inner is None:
            return any(_is_array(facts, value) for value in values_of(facts, node))
        node = inner
    return True


def _is_array(facts: Facts, value: ast.expr | None) -> bool:
    """Return whether a function or method that returns an array makes a value."""
    return isinstance(value, ast.Call) and (
        (facts.resolve(value.func) or "").startswith("numpy.") or last_name(value.func) in ("numpy", "astype")
    )


def _made_on_cpu(facts: Facts, value: ast.expr) -> bool:
    while isinstance(value, ast.Call):
        function = value.func
        if (facts.resolve(function) or "").startswith("torch."):
            return last_name(function) in _FACTORIES and not any(
                given.arg == "device" or given.arg is None for given in value.keywords
            )
        if not isinstance(function, ast.Attribute):
            return False
        if function.attr == "cpu":
            return True
        if function.attr in ("cuda", "to", "type"):
            return False
        value = function.value
    return False


def _moved(facts: Facts, value: ast.expr) -> bool:
    while isinstance(value, ast.Call):
        if last_name(value.func) == "cuda" or keyword(value, "device") is not None:
            return True
        if last_name(value.func) == "to" and moves(facts, value):
            return True
        if not isinstance(value.func, ast.Attribute):
            break
        value = value.func.value
    return False
