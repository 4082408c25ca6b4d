"""Calls that copy a tensor to another device, and return the tensor itself where there is only the CPU."""

from __future__ import annotations

import ast

from devicefix.facts.flow.kinds import Kind
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.reaching import BINDINGS, reaching
from devicefix.facts.flow.tensors import FUNCTIONS, METHODS
from devicefix.facts.module import Facts
from devicefix.facts.values import cpu, last_name

MOVES = (*METHODS["move"], *(name.rpartition(".")[2] for name in FUNCTIONS["make"]), "FloatTensor")
_DTYPES = {Kind.DTYPE, Kind.NONE}


def moves(facts: Facts, node: ast.Call) -> bool:
    """Return whether a call moves a tensor, or an array, to a device and does nothing else to it."""
    if isinstance(node.func, ast.Attribute) and node.func.attr not in MOVES:
        return False
    if facts.call(node, *FUNCTIONS["make"]):
        device = argument_of(node, "device", -1)
        return device is not None and not cpu(facts, device) and _shares_memory(facts, node)
    if is_typed(facts, node):
        return _shares_memory(facts, node)
    match node.func:
        case ast.Attribute(attr="cpu"):
            return not node.args
        case ast.Attribute(attr="cuda" | "pin_memory"):
            return facts.resolve(node.func) is None
        case ast.Attribute(attr="to"):
            return _to_device(facts, node)
        case ast.Attribute(attr="type"):
            return len(node.args) == 1 and _is_cuda_type(facts, node.args[0])
    return False


def is_typed(facts: Facts, node: ast.expr) -> bool:
    """Return whether a call makes a tensor of floats on a GPU: of an array of them, a CPU makes no copy."""
    if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
        return False
    function = node.func.body if isinstance(node.func, ast.IfExp) else node.func  # a fix makes it a choice
    return facts.resolve(function) == "torch.cuda.FloatTensor"


def _is_cuda_type(facts: Facts, node: ast.expr) -> bool:
    """Return whether an expression is a type of tensors on a GPU, or its name; a fix makes it a choice."""
    node = node.body if isinstance(node, ast.IfExp) else node
    name = node.value if isinstance(node, ast.Constant) else facts.resolve(node)
    return isinstance(name, str) and name.startswith("torch.cuda.")


def moved(call: ast.Call) -> ast.expr:
    """Return what a call moves."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in METHODS["move"]:
        return call.func.value
    return call.args[0] if call.args else call


def goes_to_cpu(facts: Facts, call: ast.Call) -> bool:
    """Return whether a move is one to the CPU."""
    target = argument_of(call, "device", 0)
    return last_name(call.func) == "cpu" or (target is not None and cpu(facts, facts.value(target) or target))


def may_be_device(facts: Facts, node: ast.expr) -> bool:
    """Return whether the first argument of `to` may be a device, or a tensor on one: no dtype is."""
    match node:
        case ast.Attribute(attr="dtype"):
            return False
        case ast.Call(func=ast.Name(id="getattr"), args=[of, *_]) if facts.resolve(of) == "torch":
            return False
    kinds = facts.kinds.of(node)
    return kinds.unknown or Kind.DTYPE not in kinds.seen or not kinds.seen.keys() <= _DTYPES


def is_moved(facts: Facts, node: ast.expr) -> bool:
    """Return whether a tensor, or what a name may be bound to where it is read, is moved to a GPU."""
    values = (value for value in [node, *values_of(facts, node)] if isinstance(value, ast.Call))
    moving = (value for value in values if moves(facts, value) and not goes_to_cpu(facts, value))
    return not all(map(facts.is_guarded, moving))


def already_there(facts: Facts, call: ast.Call, base: ast.expr) -> bool:
    """Return whether a name that is moved is shown to be a tensor that is on that device already."""
    to_cpu = goes_to_cpu(facts, call)
    values = values_of(facts, base)
    return bool(values) and all(value is not None and _is_there(facts, value, to_cpu) for value in values)


def values_of(facts: Facts, node: ast.expr) -> list[ast.expr | None]:
    """Return what a name may be bound to where it is read, None for what is not shown."""
    bound = facts.tree.bound(node)
    bindings = reaching(facts.tree, node, bound) if bound else facts.bindings(node)
    if len(bindings) > BINDINGS:
        return [None]
    return [binding.value for binding in bindings if not isinstance(binding.node, ast.AugAssign)]


def _is_there(facts: Facts, value: ast.expr, to_cpu: bool) -> bool:
    """Return whether a value is shown to be on the CPU, or to have been moved to another device."""
    while isinstance(value, ast.Call):
        if moves(facts, value):
            return goes_to_cpu(facts, value) is to_cpu
        of_torch = (facts.resolve(value.func) or "").startswith("torch.")
        if of_torch and last_name(value.func) in FUNCTIONS["new"]:
            device = argument_of(value, "device", -1)
            return (device is None or cpu(facts, device)) is to_cpu
        if not isinstance(value.func, ast.Attribute):
            return False
        value = value.func.value
    return False


def _to_device(facts: Facts, call: ast.Call) -> bool:
    """Return whether a call of `to` may move a tensor, and may return the tensor itself on a CPU."""
    copy = argument_of(call, "copy", -1)
    if isinstance(copy, ast.Constant) and copy.value:
        return False
    target = argument_of(call, "device", 0)
    if target is None or not may_be_device(facts, target):
        return False
    dtype = argument_of(call, "dtype", 1)  # to one that is written out is a conversion, which copies
    return dtype is None or not (facts.resolve(dtype) or "").startswith("torch.")


def _shares_memory(facts: Facts, call: ast.Call) -> bool:
    """Return whether a tensor that a call makes on a CPU is shown to share the memory of its argument."""
    if not call.args or any(argument_of(call, name, -1) is not None for name in ("copy", "dtype")):
        return False
    given = call.args[0]
    is_array = any(_is_array(facts, value) for value in [given, *values_of(facts, given)])
    return is_array or facts.kinds.of(given).can_be(Kind.TENSOR) is True


def _is_array(facts: Facts, value: ast.expr | None) -> bool:
    """Return whether a function or method that returns an array makes a value."""
    return isinstance(value, ast.Call) and (
        (facts.resolve(value.func) or "").startswith("numpy.") or last_name(value.func) in ("numpy", "astype")
    )


def is_parameter(facts: Facts, node: ast.expr) -> bool:
    """Return whether an expression makes a parameter or other leaf that requires gradients, or moves one."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):  # `nn.Linear(2, 1).weight`
        made = facts.resolve(node.value.func) or ""
        return node.attr in ("weight", "bias") and made.startswith("torch.nn.")
    while isinstance(node, ast.Call):
        required = argument_of(node, "requires_grad", -1)
        if isinstance(required, ast.Constant) and required.value is True:
            return True
        if last_name(node.func) == "requires_grad_":
            return not node.args
        if last_name(node.func) == "Parameter":
            required = argument_of(node, "requires_grad", 1)
            return not (isinstance(required, ast.Constant) and required.value is False)
        if last_name(node.func) == "from_pretrained":
            frozen = argument_of(node, "freeze", 1)
            return isinstance(frozen, ast.Constant) and frozen.value is False
        if not isinstance(node.func, ast.Attribute):
            return False
        node = node.func.value
    return False
