"""Refused devices: the checks that end the program on the CPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.flow.kinds import Kind
from devicefix.facts.module import Facts
from devicefix.facts.values import backend_name, cpu, device_type, last_name

# The accelerators that a device may name: https://docs.pytorch.org/docs/stable/tensor_attributes.html
_DEVICES = {"cuda", "npu", "mlu", "mps", "xpu", "hpu", "musa", "xla", "hip", "mtia", "gpu"}
# The backends of process groups besides gloo: https://docs.pytorch.org/docs/stable/distributed.html
_BACKENDS = {"nccl", "mpi", "ucc", "xccl", "hccl"}
_MAY_BE_CPU = {Kind.CPU, Kind.DEVICE}


def is_refused(facts: Facts, use: ast.expr) -> bool:
    """Return whether a use of a device is in a check that may need it to be another one than the CPU."""
    compared = next((parent for _, parent in facts.tree.ancestors(use) if not is_name_of(parent)), None)
    needed = _needed(facts, facts.tree.statement(use)) if isinstance(compared, ast.Compare) else ()
    return not all(_allows_cpu(facts, use, test, truth) for test, truth in needed)


def _needed(facts: Facts, statement: ast.stmt) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the test of a statement with what it has to be for the program to go on."""
    match statement:
        case ast.Assert(test=test):
            yield test, True
        case ast.If(test=test, body=body, orelse=orelse):
            for branch, truth in ((body, False), (orelse, True)):
                if facts.guards.refusals.refuses(branch) or any(_is_missed(facts, each) for each in branch):
                    yield test, truth


def _is_missed(facts: Facts, statement: ast.stmt) -> bool:
    """Return whether a statement sets an attribute to None that a method of the class can't do without."""
    match statement:
        case ast.Assign(
            targets=[ast.Attribute(value=ast.Name(id="self")) as attribute], value=ast.Constant(value=None)
        ):
            name, owner = ast.unparse(attribute), facts.tree.scope(statement).parent
            tests = f"{name} is None", f"not {name}"
            checks = (node for node in facts.tree.nodes_with(*tests) if isinstance(node, ast.If))
            return any(
                ast.unparse(check.test) in tests and facts.guards.refusals.refuses(check.body)
                for check in checks
                if facts.tree.scope(check).parent is owner
            )
    return False


def _allows_cpu(facts: Facts, use: ast.expr, test: ast.expr, truth: bool) -> bool:
    """Return whether a test can be true (or false) where a device in it is the CPU."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _allows_cpu(facts, use, operand, not truth)
        case ast.BoolOp(op=op, values=values):
            every = all if isinstance(op, ast.And) is truth else any
            return every(_allows_cpu(facts, use, value, truth) for value in values)
    sides, equal = _compared(test, truth)
    others = [side for side in sides if use not in ast.walk(side)]
    if len(others) == len(sides):
        return True  # of something else
    if not equal:
        return not any(cpu(facts, other) or device_type(facts, other) == "cpu" for other in others)
    is_device = use in sides and facts.call(facts.value(use) or use, "torch.device")
    return any(_may_be_cpu(facts, other) or _is_of_tensor(other, is_device) for other in others)


def _may_be_cpu(facts: Facts, node: ast.expr) -> bool:
    """Return whether a value, or one in a display, is shown to be the CPU, or a device that may be it."""
    match facts.value(node) or node:
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return any(_may_be_cpu(facts, element) for element in elements)
        case ast.Constant(value=str(text)):
            return text.startswith("cpu")
        case value:
            return device_type(facts, value) == "cpu" or facts.kinds.of(value).shown(_MAY_BE_CPU)


def _is_of_tensor(node: ast.expr, is_device: bool) -> bool:
    """Return whether a value is `x.device.type`, or an `x.device` that equals a device, and so is no string.

    Where it is not the device of a tensor, the device that the program makes has a finding of its own.
    """
    match node:
        case ast.Attribute(attr="type", value=ast.Attribute(attr="device")):
            return True
        case ast.Attribute(attr="device"):
            return is_device
    return False


def is_name_of(node: ast.AST) -> bool:
    """Return whether a node is a device of a name, or its type or name: `device.type`, `str(device)`."""
    match node:
        case ast.Attribute(attr="type"):
            return True
        case ast.Call(func=function):
            return last_name(function) in ("device", "str")
    return False


def missing_device(facts: Facts, test: ast.expr, truth: bool) -> str:
    """Return what a test lacks to be true (or false) on a CPU: the CPU in `device in ["cuda", "npu"]`.

    It is empty for a test of something else.

    Args:
        facts: the facts of the module.
        test: the test.
        truth: what the program needs it to be.
    """
    sides, equal = _compared(test, truth)
    if not equal or (isinstance(sides[0], ast.Call) and last_name(sides[0].func) != "str"):
        return ""
    named = (device_type(facts, side) or backend_name(facts, side) or "" for side in sides[1:])
    names = {name.partition(":")[0] for name in named}
    if "cuda" in names and names <= _DEVICES:
        return "the CPU"
    return "the `gloo` backend" if "nccl" in names and names <= _BACKENDS else ""


def _compared(test: ast.expr, truth: bool) -> tuple[list[ast.expr], bool]:
    """Return a value and those that it is compared with, and whether it must be one of them, or none.

    That is so for the test to be true, or false with `truth=False`; nothing is compared in other tests.
    """
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _compared(operand, not truth)
        case ast.Compare(
            left=left, ops=[ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn() as op], comparators=[right]
        ):
            is_in = isinstance(op, ast.In | ast.NotIn)
            others = right.elts if is_in and isinstance(right, ast.List | ast.Tuple | ast.Set) else [right]
            return [left, *others], isinstance(op, ast.Eq | ast.In) is truth
    return [], False
