"""Refused devices: the checks that end the program on the CPU, and the parameters that are so checked."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from devicefix.facts.flow.kinds import Kind
from devicefix.facts.flow.parameters import Parameter
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.module import Facts
from devicefix.facts.values import backend_name, cpu, device_type, last_name

# The accelerators that a device may name: https://docs.pytorch.org/docs/stable/tensor_attributes.html
_DEVICES = {"cuda", "npu", "mlu", "mps", "xpu", "hpu", "musa", "xla", "hip", "mtia", "gpu"}
# The backends of process groups besides gloo: https://docs.pytorch.org/docs/stable/distributed.html
_BACKENDS = {"nccl", "mpi", "ucc", "xccl", "hccl"}
_MAY_BE_CPU = {Kind.CPU, Kind.DEVICE}
_REFUSING = ("raise", "assert", "exit(")
_NAMES = ('"cpu', "'cpu", '"cuda', "'cuda")
_COMPARED = re.compile(r"[=!]=| in\b")
_STEPS = 7  # from a value to a parameter, also one of a function that passes it on


def refused_parameters(facts: Facts) -> frozenset[Parameter]:
    """Return the parameters with which functions end the program on the CPU, perhaps by a call of another."""
    if not any(word in facts.tree.text for word in _REFUSING):
        return frozenset()
    return Sources(facts, How.BOUND | How.PASSED | How.NAMED, _STEPS).parameters(_checked(facts))


def _checked(facts: Facts) -> Iterator[ast.expr]:
    """Yield the expressions whose check ends the program on the CPU."""
    named = sorted({line for name in _NAMES for line in facts.tree.words.lines_with(name)})
    text = facts.tree.text.split("\n") if named else []
    lines = [line for line in named if _COMPARED.search(text[line - 1])]
    for node in facts.tree.nodes_at(lines) if lines else ():
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                for part in ast.walk(side):
                    if isinstance(part, ast.Name | ast.Attribute) and is_refused(facts, part):
                        yield part


def is_refused(facts: Facts, use: ast.expr) -> bool:
    """Return whether a use of a device is in a check that may need it to be another one than the CPU."""
    compared = next((parent for _, parent in facts.tree.ancestors(use) if not _is_name_of(parent)), None)
    if not isinstance(compared, ast.Compare):
        return False
    match facts.tree.statement(use):
        case ast.Assert(test=test):
            needed = [(test, True)]
        case ast.If(test=test, body=body, orelse=orelse):
            branches = ((body, False), (orelse, True))
            needed = [
                (test, truth)
                for branch, truth in branches
                if facts.guards.refusals.refuses(branch) or _lacks_what_it_needs(facts, branch)
            ]
        case _:
            return False
    return any(
        missing_device(facts, test, truth)
        or _needs_another(facts, use, test, truth)
        or _excludes_cpu(facts, test, truth)
        for test, truth in needed
    )


def _lacks_what_it_needs(facts: Facts, branch: Sequence[ast.stmt]) -> bool:
    """Return whether a branch sets an attribute to None that a method of the class can't do without."""
    for statement in branch:
        match statement:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Constant(value=None)
            ):
                owner = facts.tree.scope(statement).parent
                for node in facts.tree.nodes_with(f"self.{name} is None", f"not self.{name}"):
                    around = facts.tree.scope(node).parent
                    if isinstance(node, ast.If) and around is owner and _asks_for(node.test, name):
                        if facts.guards.refusals.refuses(node.body):
                            return True
    return False


def _asks_for(test: ast.expr, name: str) -> bool:
    """Return whether a test is `self.x is None` or `not self.x`."""
    match test:
        case ast.Compare(left=attribute, ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            return isinstance(attribute, ast.Attribute) and attribute.attr == name
        case ast.UnaryOp(op=ast.Not(), operand=ast.Attribute(attr=attr)):
            return attr == name
    return False


def _excludes_cpu(facts: Facts, test: ast.expr, truth: bool) -> bool:
    """Return whether a test is never true (or false, with `truth=False`) of the CPU: `device != "cpu"`."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _excludes_cpu(facts, operand, not truth)
        case ast.BoolOp(op=op, values=values):
            some = any if isinstance(op, ast.And) is truth else all
            return some(_excludes_cpu(facts, value, truth) for value in values)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as op], comparators=[right]):
            excluded: list[ast.expr] = [left, right]
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[right]):
            elements = right.elts if isinstance(right, ast.List | ast.Tuple | ast.Set) else []
            excluded = [left, *elements]
        case _:
            return False
    return isinstance(op, ast.NotEq | ast.NotIn) is truth and any(
        cpu(facts, each) or device_type(facts, each) == "cpu" for each in excluded
    )


def _needs_another(facts: Facts, use: ast.expr, test: ast.expr, truth: bool) -> bool:
    """Return whether a test may need a device to be something else than the CPU to be true (or false)."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _needs_another(facts, use, operand, not truth)
        case ast.BoolOp(op=op, values=values):
            some = any if isinstance(op, ast.And) is truth else all
            return some(_needs_another(facts, use, value, truth) for value in values)
    sides = _compared(test, truth)
    others = [side for side in sides if use not in ast.walk(side)]
    is_device = use in sides and facts.call(facts.value(use) or use, "torch.device")
    return len(others) < len(sides) and not any(
        _may_be_cpu(facts, other) or _is_of_tensor(other, is_device) for other in others
    )


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


def _is_name_of(node: ast.AST) -> bool:
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
    match _compared(test, truth):
        case [left, *elements] if not isinstance(left, ast.Call) or last_name(left.func) == "str":
            pass
        case _:
            return ""
    names = {device_type(facts, element) or backend_name(facts, element) for element in elements}
    if "cuda" in names and names <= _DEVICES:
        return "the CPU as a device"
    return "`gloo` as a backend" if "nccl" in names and names <= _BACKENDS else ""


def _compared(test: ast.expr, truth: bool) -> list[ast.expr]:
    """Return a value and those of which it must be one for a test to be true (or false), or nothing."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _compared(operand, not truth)
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[right]):
            elements = right.elts if isinstance(right, (ast.List, ast.Tuple, ast.Set)) else [right]
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as op], comparators=[right]):
            elements = [right]
        case _:
            return []
    return [left, *elements] if isinstance(op, (ast.In, ast.Eq)) is truth else []
