"""Calls that copy on a GPU and return the same tensor on a CPU."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from devicefix.facts.copies.expressions import keyword, names_cpu, viewed
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding
from devicefix.facts.values import cuda_string, device_name, index_name, last_name

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
    if node.func.attr == "cpu":
        return not node.args
    if node.func.attr == "cuda":
        return facts.resolve(node.func) is None
    if node.func.attr != "to" or keyword(node, "copy") is not None or len(node.args) > 1:
        return False
    target = node.args[0] if node.args else keyword(node, "device")
    return target is not None and keyword(node, "dtype") is None and _device(facts, target)


def as_tensor(facts: Facts, node: ast.Call) -> bool:
    """Return whether a call is one of `torch.as_tensor`."""
    return last_name(node.func) == "as_tensor" and facts.call(node, "torch.as_tensor")


def already_there(facts: Facts, call: ast.Call, base: ast.expr) -> bool:
    """Return whether a move of `base` does nothing on a GPU either, since the tensor is on that device."""
    target = call.args[0] if call.args else keyword(call, "device")
    to_cpu = last_name(call.func) == "cpu" or (target is not None and names_cpu(target))
    node = base
    while True:
        if isinstance(node, ast.Call) and moves(facts, node) and isinstance(node.func, ast.Attribute):
            return False
        inner = viewed(node)
        if inner is None:
            break
        node = inner
    return facts.once(_all_there, facts.bindings(node), _made_on_cpu if to_cpu else _moved)


def _all_there(facts: Facts, bindings: Sequence[Binding], there: Callable[[Facts, ast.expr], bool]) -> bool:
    """Return whether all values of a name are on a device already."""
    values = [binding.value for binding in bindings if not isinstance(binding.node, ast.AugAssign)]
    return bool(values) and all(value is not None and there(facts, value) for value in values)


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


def _device(facts: Facts, node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _device(facts, node.body) or _device(facts, node.orelse)
    name = last_name(node)
    return (
        cuda_string(node)
        or names_cpu(node)
        or (bool(name) and (device_name(name) or index_name(name)))
        or (isinstance(node, ast.Call) and last_name(node.func) == "get_device")
        or (isinstance(node, ast.Call) and facts.call(node, "torch.device"))
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
