"""The device arguments of calls such as `.cuda(1)`, and the portable devices that replace them."""

from __future__ import annotations

import ast
import re

from devicefix.devices.context import Context
from devicefix.devices.expression import DeviceExpr
from devicefix.devices.variables import is_never_none
from devicefix.facts import Facts, dotted
from devicefix.facts.effects import has_effects
from devicefix.facts.flow.kinds import NUMBERS, Kind
from devicefix.facts.values import (
    cuda_literal,
    cuda_string,
    current_device,
    device_name,
    index_name,
    is_constant,
    last_name,
    literal_index,
)
from devicefix.model import Fix

_BY_NAME = "only the name suggests a GPU index"
_OTHER_VALUES = "the value may be something other than a GPU index"
_GPU_LIST = re.compile(r"(^|_)(gpus|(gpu|device)_?ids?)\Z", re.I)


def device_argument(node: ast.Call) -> ast.expr | None:
    """Return the device argument of a call of `.cuda(...)` or `.to(...)`, None if it has none."""
    if node.args:
        return node.args[0]
    return next((keyword.value for keyword in node.keywords if keyword.arg == "device"), None)


def target_device(context: Context, node: ast.Call, target: ast.expr | None) -> DeviceExpr | None:
    """Return the device that a call of `.cuda(target)` moves to, or the CPU.

    Args:
        context: The context of the module.
        node: The call.
        target: Its device argument.

    Returns:
        The new argument, None where it is not known whether the target is an index or a device, and where to
        skip it on a CPU would skip more than a value.
    """
    facts, devices = context.facts, context.devices
    if target is None or is_constant(target, None) or facts.call(target, "torch.cuda.current_device"):
        return devices.current(node)
    index = literal_index(target)
    if index is not None:
        return devices.indexed(node, index, may_be_text=True)
    if (device := device_of_tensor(context, target)) is not None:
        return device
    code = context.source.code(target)
    if may_ask_tensor(context, target):
        return devices.either(target, code)
    if isinstance(target, ast.Name) and current_device(facts, target):
        return DeviceExpr(code)
    if context.accelerator and any(context.accelerator.references(target)):
        return None
    return devices.of_variable(node, target) or _of_value(context, target, code)


def _of_value(context: Context, target: ast.expr, code: str) -> DeviceExpr | None:
    """Return the device of an expression that is a number, None or a device; None where it may be more."""
    facts = context.facts
    if facts.kinds.of(target).are({*NUMBERS, Kind.NONE}) and not has_effects(facts, target):
        if context.accelerator and facts.kinds.of(target).are(NUMBERS):
            return context.devices.either(target, code)  # a number is that of an accelerator
        return context.devices.computed(target, code)
    is_device = dotted(target) is not None and is_never_none(facts, target)
    if facts.call(target, "torch.device") and isinstance(target, ast.Call):
        is_device = all(dotted(argument) is not None for argument in target.args) and not target.keywords
    return context.devices.either(target, code) if is_device else None


def runtime_device(context: Context, node: ast.Call, target: ast.expr) -> DeviceExpr | None:
    """Return the device of `.cuda(target)` for a target that may be an index, None, a device or its name.

    Returns:
        An expression that finds it out at run time, None where the target can't be evaluated twice.
    """
    code, read = context.source.code(target), target
    match target:
        case ast.Subscript(slice=ast.Constant() | ast.Name()) if context.accelerator is not None:
            read = target.value  # of `gpu_ids[0]`
    if dotted(read) is None:
        return None
    if context.accelerator is not None:
        device = context.devices.current(node)
        available = context.devices.available(target)
        needs = device.needs | available.needs
        return DeviceExpr(f"{code} if {code} is not None and {available.text} else {device.text}", needs)
    device_type = context.devices.device_type(node)
    return context.devices.either(target, f"({device_type} if {code} is None else {code})")


def device_of_tensor(context: Context, target: ast.expr) -> DeviceExpr | None:
    """Return `y.device` for `y.get_device()` of a tensor, which is -1 on the CPU; None for anything else."""
    if not asks_for_index(target):
        return None
    tensor = target.func.value  # type: ignore[attr-defined]
    if not context.facts.kinds.of(tensor).are({Kind.TENSOR}):
        return None
    return DeviceExpr(context.source.code(target.func).removesuffix("get_device") + "device")  # type: ignore[attr-defined]


def asks_for_index(target: ast.expr) -> bool:
    """Return whether an expression is `y.get_device()`."""
    match target:
        case ast.Call(func=ast.Attribute(attr="get_device"), args=[], keywords=[]):
            return True
    return False


def device_fix(context: Context, target: ast.expr) -> Fix | None:
    """Return the fix of an expression that names a CUDA device, where code accepts a device object."""
    device = _literal_device(context, target)
    if device is not None:
        return context.replace(target, device)
    if context.facts.call(target, "torch.cuda.current_device"):
        return context.replace(target, context.devices.current(target))
    if cuda_string(target):
        return context.when_cuda(target, '"cpu"')
    why = gpu_number(context, target)
    found = context.facts.tree.lookup(target)
    if why == "" and found is not None and found[0].is_module and is_never_none(context.facts, target):
        device = context.devices.of_variable(target, target)
        if device is not None:
            needs = device.needs | context.devices.of_others
            return context.replace(target, DeviceExpr(device.text, needs))
    return None if why is None else context.when_cuda(target, '"cpu"', why)


def name_fix(context: Context, target: ast.expr) -> Fix | None:
    """Return the fix of an argument such as `"cuda:1"` that gets the name of a device of the module.

    Returns:
        None for other expressions, and where there is no such device.
    """
    index = cuda_literal(target) if isinstance(target, ast.Constant) else None
    if isinstance(index, int) and target.value == f"cuda:{index}":  # type: ignore[attr-defined]
        new = context.devices.text(target, index)
    elif isinstance(target, ast.Constant) and target.value == "cuda":
        new = context.devices.text(target)
    else:
        return None
    if new is None:
        return None
    code, use = new
    return context.edit(target, lambda _: code(), use)


def gpu_number(context: Context, target: ast.expr) -> str | None:
    """Return why it is not safe to take an expression for the number of a GPU, or None if it is none.

    It is safe if all values that the module shows are numbers, None, CUDA devices or the CPU. It is a guess
    if one of them is a number, or if nothing but the name says so.
    """
    if context.facts.call(target, "torch.cuda.current_device"):
        return None  # which has a rule of its own
    value = context.facts.value(target) or target
    if asks_for_index(value):
        return "" if may_ask_tensor(context, value) else None
    if _is_asked_tensor(context.facts, target):
        return None
    kinds = context.facts.kinds.of(target)
    if NUMBERS.isdisjoint(kinds.seen):
        return _BY_NAME if _is_called_gpu(target) and not kinds.shown(set(Kind)) else None
    return "" if kinds.shown({*NUMBERS, Kind.NONE, Kind.CUDA, Kind.CPU}) else _OTHER_VALUES


def _is_asked_tensor(facts: Facts, target: ast.expr) -> bool:
    """Return whether an expression is only evaluated where it is asked to be a tensor."""
    path = dotted(target)
    for child, parent in facts.tree.ancestors(target) if path is not None else ():
        match parent:
            case ast.If(test=test) if isinstance(child, ast.stmt) and facts.tree.block(child) is parent.body:
                pass
            case ast.IfExp(test=test, body=then) if child is then:
                pass
            case _:
                continue
        parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        if any(_asks_for_tensor(facts, part) and dotted(part.args[0]) == path for part in parts):  # type: ignore[attr-defined]
            return True
    return False


def _asks_for_tensor(facts: Facts, test: ast.expr) -> bool:
    """Return whether a test is `torch.is_tensor(x)` or `isinstance(x, torch.Tensor)`."""
    match test:
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]):
            return facts.resolve(kind) == "torch.Tensor"
        case ast.Call(args=[_]):
            return facts.call(test, "torch.is_tensor")
    return False


def may_ask_tensor(context: Context, target: ast.expr) -> bool:
    """Return whether an expression is `y.get_device()` of what is shown to be a tensor, or may be one.

    The latter only if the project defines no method of this name.
    """
    if not asks_for_index(target):
        return False
    owner = target.func.value  # type: ignore[attr-defined]
    if Kind.TENSOR in context.facts.kinds.of(owner).seen:
        return True
    return last_name(owner) != "self" and not context.project.defines_get_device()


def _is_called_gpu(target: ast.expr) -> bool:
    """Return whether an expression has the name of a GPU's index: `gpu`, `args.rank`, `gpu_ids[0]`."""
    if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
        return bool(_GPU_LIST.search(last_name(target.value)))
    name = last_name(target)
    return index_name(name) and not device_name(name)


def _literal_device(context: Context, target: ast.expr) -> DeviceExpr | None:
    """Return the device for a literal such as `"cuda:1"`, or for a tensor's device; else None."""
    if (device := device_of_tensor(context, target)) is not None:
        return device
    number = literal_index(target)
    if number is not None:
        return context.devices.indexed(target, number)
    index = cuda_literal(target)
    if context.facts.call(target, "torch.device") and len(target.args) == 1 and not target.keywords:
        index = cuda_literal(target.args[0])
    if index is None:
        return context.devices.current(target)
    if not isinstance(index, int):
        return None
    return context.devices.indexed(target, index, may_be_text=cuda_string(target))
