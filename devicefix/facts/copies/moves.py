"""Calls that copy on a GPU and return the same tensor on a CPU."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from devicefix.facts.copies.dtypes import converts, may_be_device
from devicefix.facts.copies.expressions import keyword, names_cpu, viewed
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding
from devicefix.facts.values import last_name

_FACTORIES = {
    "zeros", "ones", "empty", "full", "tensor", "rand", "randn", "arange", "from_numpy", "zeros_like",
    "FloatTensor", "LongTensor", "Tensor", "eye", "linspace", "randint", "ByteTensor", "IntTensor",
    "DoubleTensor",
}  # fmt: skip


def moves(facts: Facts, node: ast.Call) -> bool:
    """Return whether a call moves a tensor, or a NumPy array, to a device and does nothing else to it."""
    if as_tensor(facts, node):
        device = keyword(node, "device")
        return (
            bool(node.args)
            and device is not None
            and keyword(node, "dtype") is None
            and not names_cpu(device)
        )
    if not isinstance(node.func, ast.Attribute):
        return False
    match node.func.attr:
        case "cpu":
            return not node.args
        case "cuda":
            return facts.resolve(node.func) is None
        case "to":
            return _to_device(facts, node)
    return False


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


def as_tensor(facts: Facts, node: ast.Call) -> bool:
    """Return whether a call is one of `torch.as_tensor`."""
    return last_name(node.func) == "as_tensor" and facts.call(node, "torch.as_tensor")


def goes_to_cpu(call: ast.Call) -> bool:
    """Return whether a move is one to the CPU."""
    target = call.args[0] if call.args else keyword(call, "device")
    return last_name(call.func) == "cpu" or (target is not None and names_cpu(target))


def already_there(facts: Facts, call: ast.Call, base: ast.expr) -> bool:
    """Return whether a move of `base` does nothing on a GPU either, since the tensor is on that device."""
    to_cpu = goes_to_cpu(call)
    node = base
    while True:
        if isinstance(node, ast.Call) and moves(facts, node) and isinstance(node.func, ast.Attribute):
            return False
        inner = viewed(node)
        if inner is None:
            break
        node = inner
    return facts.once(_all_there, facts.bindings(node), to_cpu)


def _all_there(facts: Facts, bindings: Sequence[Binding], to_cpu: bool) -> bool:
    """Return whether all values of a name are on a device already."""
    values = [binding.value for binding in bindings if not isinstance(binding.node, ast.AugAssign)]
    return bool(values) and all(value is not None and is_there(facts, value, to_cpu) for value in values)


def is_there(facts: Facts, value: ast.expr, to_cpu: bool) -> bool:
    """Return whether a value is shown to be on the CPU, or to have been moved to a device."""
    return _made_on_cpu(facts, value) if to_cpu else _moved(facts, value)


def numpy_array(facts: Facts, node: ast.expr) -> bool:
    """Return whether an expression is a view of a name that is bound to a NumPy array."""
    while (inner := viewed(node)) is not None:
        node = inner
    return facts.once(_all_arrays, facts.bindings(node))


def _all_arrays(facts: Facts, bindings: Sequence[Binding]) -> bool:
    values = [binding.value for binding in bindings]
    return bool(values) and all(
        isinstance(value, ast.Call)
        and (
            (facts.resolve(value.func) or "").startswith("numpy.")
            or last_name(value.func) in ("numpy", "astype")
        )
        for value in values
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
