"""What the device that a call is given becomes: one that there is on every machine."""

from __future__ import annotations

import ast
import re

from devicefix.devices.accelerator import references
from devicefix.devices.choose import DeviceExpr
from devicefix.devices.context import Context
from devicefix.facts import Facts, dotted
from devicefix.facts.values import (
    cuda_literal,
    cuda_string,
    current_device,
    device_name,
    index_name,
    index_or_none,
    last_name,
    literal_index,
)
from devicefix.model import Fix


def device_argument(node: ast.Call) -> ast.expr | None:
    """What a call of `.cuda(...)` or `.to(...)` says about the device, None for nothing."""
    if node.args:
        return node.args[0]
    return next((each.value for each in node.keywords if each.arg == "device"), None)


def target_device(context: Context, node: ast.Call, target: ast.expr | None) -> DeviceExpr | None:
    """The device that a call of `.cuda(target)` moves to, or the CPU.

    Returns:
        None where the target may be anything, and is more than a name or an attribute.
    """
    facts, devices = context.facts, context.devices
    if target is None or (isinstance(target, ast.Constant) and target.value is None):
        return devices.current(node)
    index = literal_index(target)
    if index is not None:
        return devices.indexed(node, index)
    code = context.source.code(target)
    place = tensors_place(context, target)
    if place is not None:
        return place
    if _device(facts, target):
        return DeviceExpr(code)
    if context.accelerator and any(references(context.accelerator, target)):
        return devices.current(node) if facts.call(target, "torch.cuda.current_device") else None
    return devices.numbered(target, code) if index_or_none(facts, target) else None


def any_device(context: Context, node: ast.Call, target: ast.expr) -> DeviceExpr | None:
    """The device for `.cuda(target)` whatever the target is: a number, None, a device or its name.

    Returns:
        None where the target can't be named twice.
    """
    if dotted(target) is None:
        return None
    code = context.source.code(target)
    kind = context.devices.kind(node)
    given = f"({kind} if {code} is None else {code})"
    return context.devices.either(target, given)


def _device(facts: Facts, target: ast.expr) -> bool:
    """Whether a name is bound to a device that is the CPU where there is no CUDA."""
    return isinstance(target, ast.Name) and current_device(facts, target)


def named_device(context: Context, target: ast.expr) -> Fix | None:
    """The fix for an expression that names a CUDA device where a device object will do."""
    use = _definite(context, target)
    if use is not None:
        return context.replace(target, use)
    if cuda_string(target) or context.facts.call(target, "torch.cuda.current_device") or gpu_number(target):
        return context.when_cuda(target, '"cpu"')
    return None


def gpu_number(target: ast.expr) -> bool:
    """Whether an expression is called what a GPU's number is: `gpu`, `args.rank`, `gpu_ids[0]`."""
    if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
        return bool(re.search(r"(^|_)(gpus|(gpu|device)_?ids?)\Z", last_name(target.value), re.I))
    name = last_name(target)
    return index_name(name) and not device_name(name)


def _definite(context: Context, target: ast.expr) -> DeviceExpr | None:
    place = tensors_place(context, target)
    if place is not None:
        return place
    number = literal_index(target)
    if number is not None:
        return context.devices.indexed(target, number)
    index = cuda_literal(target)
    if context.facts.call(target, "torch.device"):
        assert isinstance(target, ast.Call)
        if len(target.args) == 1 and not target.keywords:
            index = cuda_literal(target.args[0])
    if index is None:
        return context.devices.current(target)
    return context.devices.indexed(target, index) if isinstance(index, int) else None


def tensors_place(context: Context, target: ast.expr) -> DeviceExpr | None:
    """`y.device` for `y.get_device()`, which is the number of the same place on a GPU, but -1 on a CPU."""
    if not (isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute)):
        return None
    if (
        target.func.attr != "get_device"
        or target.args
        or target.keywords
        or last_name(target.func.value) == "self"
    ):
        return None
    return DeviceExpr(context.source.code(target.func).removesuffix("get_device") + "device")
