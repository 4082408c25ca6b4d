"""Refusals to run without CUDA: whether one can go, and why it can't."""

from __future__ import annotations

import ast
import os.path
import re
from collections.abc import Iterator
from dataclasses import dataclass

from devicefix.devices.context import Context
from devicefix.facts import Facts
from devicefix.facts.kinds import Kind
from devicefix.facts.scopes import FUNCTIONS
from devicefix.facts.values import backend_name, device_type, last_name
from devicefix.model import Safety
from devicefix.rules.shared.libraries import CudaLibraries

MESSAGE = "stops the program without CUDA"

# A condition that holds one of these may ask for a device. A request that can't be met keeps its error.
_REQUEST = re.compile(r"cuda|gpu|cpu|device|nccl|accelerat", re.I)
_TEST_FILE = re.compile(r"(?:test_.*|.*_tests?|conftest)\.py\Z")
_TEST_FOLDERS = {"test", "tests"}
_MEANT_TO_BE_CAUGHT = {"ImportError", "ModuleNotFoundError"}
# The accelerators that a device may name: https://docs.pytorch.org/docs/stable/tensor_attributes.html
_DEVICES = {"cuda", "npu", "mlu", "mps", "xpu", "hpu", "musa", "xla", "hip", "mtia", "gpu"}
# The backends of process groups besides gloo: https://docs.pytorch.org/docs/stable/distributed.html
_BACKENDS = {"nccl", "mpi", "ucc", "xccl", "hccl"}
_MAY_BE_CPU = {Kind.CPU, Kind.DEVICE}
_GROUPS = ("torch.distributed.init_process_group", "torch.distributed.distributed_c10d.init_process_group")
_CALLERS = 3  # how many functions to follow, each called by the next


@dataclass(frozen=True, slots=True)
class Verdict:
    """The finding that a refusal leads to.

    Attributes:
        message: what is wrong and what to do.
        safety: how safe the removal is; None where the refusal stays.
    """

    message: str
    safety: Safety | None = None


class Refusals:
    """The refusals of one module that are never reached on a machine with CUDA.

    Args:
        context: the context of the module.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.facts = context.facts
        self.libraries = CudaLibraries(context)

    def verdict(self, site: ast.AST, test: ast.expr, error: str | None) -> Verdict | None:
        """Return what to do with a refusal, None where it is right.

        It is safe to remove where the program reaches it whatever its user asks for, nothing catches its error,
        and what follows can run without CUDA.

        Args:
            site: the statement or expression that refuses.
            test: what it depends on.
            error: the name of the class of its error, None if that is not known.
        """
        refusals = self.facts.guards.refusals
        if self.is_requested(site, *self.facts.guards.conditions(test)) or refusals.is_handled(site, error):
            return None
        if self.in_test(site):
            return Verdict(f"{MESSAGE}, in a test; skip the test, or let it run on a CPU")
        library = self.libraries.needed_by(self.function(site), site)
        if library is not None:
            return Verdict(f"{MESSAGE}, and this code needs `{library}`; add a path for the CPU")
        if refusals.handlers(site, error):
            return Verdict(f"{MESSAGE}; remove the check, with the handler of its error")
        if error in _MEANT_TO_BE_CAUGHT:
            return Verdict(
                f"{MESSAGE}, or the import of this module; remove the check unless a caller needs it"
            )
        asked = not self._precedes_group(site)
        if self.facts.guards.conditions(test) or (asked and self._conditions(site)):
            return Verdict(
                f"{MESSAGE} on a condition; remove the check unless the user asks for a GPU", Safety.UNSAFE
            )
        if not self._is_reached(site, error, _CALLERS, asked=asked):
            return Verdict(f"{MESSAGE}; remove the check unless a caller catches its error", Safety.UNSAFE)
        return Verdict(f"{MESSAGE}; remove the check", Safety.SAFE)

    def _precedes_group(self, site: ast.AST) -> bool:
        """Return whether a statement is followed by one that makes a process group: what leads to both asks for that.

        A GPU is not what is asked for then; the group is made with gloo on a CPU.
        """
        block = self.facts.tree.block(site) if isinstance(site, ast.stmt) else []
        return any(
            isinstance(later, (ast.Expr, ast.Assign))
            and isinstance(later.value, ast.Call)
            and self.facts.call(later.value, *_GROUPS)
            for later in block[block.index(site) + 1 if site in block else len(block) :]
        )

    def is_requested(self, site: ast.AST, *conditions: ast.expr) -> bool:
        """Return whether a refusal answers a request for a device: a condition in or around it names one.

        Where it names none, the refusal is reported, but not removed either.
        """
        conditions = (*conditions, *self._conditions(site))
        return any(_REQUEST.search(self.context.source.code(condition)) for condition in conditions)

    def in_test(self, site: ast.AST) -> bool:
        """Return whether a node is part of a test."""
        *folders, name = os.path.normpath(self.context.devices.path).split(os.sep)
        if _TEST_FILE.match(name) or not _TEST_FOLDERS.isdisjoint(folders):
            return True
        return any(
            isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and parent.name.startswith("test_")
            for _, parent in self.facts.tree.ancestors(site)
        )

    def function(self, site: ast.AST) -> ast.AST:
        """Return the function that a node is in, or the module."""
        *_, (_, outermost) = self._around(site)
        return outermost

    def _around(self, site: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Yield pairs of a child and its parent, from a node up to its function or the module."""
        for child, parent in self.facts.tree.ancestors(site):
            yield child, parent
            if isinstance(parent, FUNCTIONS):
                return

    def _conditions(self, site: ast.AST) -> list[ast.expr]:
        """Return the conditions on which a node of a function, or of the module, is reached."""
        found: list[ast.expr] = []
        for child, parent in self._around(site):
            match parent:
                case ast.If() | ast.While() | ast.IfExp() if child is not parent.test:
                    found += self._open(parent.test)
                case ast.BoolOp(values=values) if child is not values[0]:
                    found += self._open(values[0])
                case ast.Match() if child is not parent.subject:
                    found.append(parent.subject)
                case ast.ExceptHandler(type=ast.expr() as kind):
                    found.append(kind)
            if isinstance(child, ast.stmt):
                for statement in self._before(child):
                    found += self._open(statement.test)
        return found

    def _before(self, statement: ast.stmt) -> Iterator[ast.If]:
        """Yield the `if` statements that may end the block of a statement before it is reached."""
        for earlier in self.facts.tree.block(statement):
            if earlier is statement:
                return
            if isinstance(earlier, ast.If) and any(
                isinstance(clause[-1], (ast.Return, ast.Break, ast.Continue))
                for clause in (earlier.body, earlier.orelse)
                if clause
            ):
                yield earlier

    def _open(self, test: ast.expr) -> list[ast.expr]:
        """Return the conditions in a test, without the question whether the module is the program."""
        return [
            condition
            for condition in self.facts.guards.conditions(test)
            if not isinstance(condition, ast.Constant)
            and "__name__" not in self.context.source.code(condition)
        ]

    def _is_reached(self, site: ast.AST, error: str | None, callers: int, *, asked: bool) -> bool:
        """Return whether a node is always reached when the module runs, and nothing catches an error there.

        Args:
            site: the node.
            error: the name of the class of the error, None if that is not known.
            callers: how many functions to follow.
            asked: whether any condition may ask for a GPU, and not only one that names a device.
        """
        if self.facts.guards.refusals.handlers(site, error):
            return False
        if self._conditions(site) if asked else self.is_requested(site):
            return False
        function = self.function(site)
        if self._is_tried(function):
            return False
        if isinstance(function, ast.Module):
            return True
        if callers == 0 or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        uses = [use for use in self._uses(function) if not self._is_inside(use, function)]
        return bool(uses) and all(self._is_reached(use, error, callers - 1, asked=asked) for use in uses)

    def _is_tried(self, function: ast.AST) -> bool:
        """Return whether another file catches the errors of a function or, for the module, of its import."""
        path = self.context.devices.path
        folder, name = os.path.split(os.path.splitext(os.path.normpath(path))[0])
        names = [os.path.basename(folder) if name == "__init__" else name]
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            owner = self.facts.tree.parents.get(function)
            names = [function.name, *([owner.name] if isinstance(owner, ast.ClassDef) else [])]
        return any(self.context.project.is_tried(path, each) for each in names)

    def _uses(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
        """Return where the module reads the name of a function, or of the class that it creates objects of.

        An attribute of the name of a module's function is something else, as in `model.train()`.
        """
        owner = self.facts.tree.parents.get(function)
        name = (
            owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
        )
        return [
            node
            for node in self.facts.tree.nodes_with(name)
            if (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load))
            or (isinstance(node, ast.Attribute) and node.attr == name and not isinstance(owner, ast.Module))
        ]

    def _is_inside(self, node: ast.AST, function: ast.AST) -> bool:
        return any(parent is function for _, parent in self.facts.tree.ancestors(node))


def refusing(context: Context, device: ast.expr) -> ast.stmt | None:
    """Return the first check of a device, or of its name, that ends the program on the CPU, if there is one.

    Args:
        context: the context of the module.
        device: the expression whose value is the device or its name.
    """
    found = [use for use in context.uses.of(device).uses if _is_refused(context.facts, use)]
    first = min(found, key=lambda use: (use.lineno, use.col_offset), default=None)
    return None if first is None else context.facts.tree.statement(first)


def _is_refused(facts: Facts, use: ast.expr) -> bool:
    """Return whether a use of a device is in a check that may need it to be another one than the CPU."""
    compared = next((parent for _, parent in facts.tree.ancestors(use) if not _is_name_of(parent)), None)
    if not isinstance(compared, ast.Compare):
        return False
    match facts.tree.statement(use):
        case ast.Assert(test=test):
            needed = [(test, True)]
        case ast.If(test=test, body=body, orelse=orelse):
            branches = ((body, False), (orelse, True))
            needed = [(test, truth) for branch, truth in branches if facts.guards.refusals.refuses(branch)]
        case _:
            return False
    return any(
        missing_device(facts, test, truth) or _needs_another(facts, use, test, truth)
        for test, truth in needed
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
    """Return whether a value, or one in a display of several, is shown to be the CPU, or a device that may be it."""
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
    """Return a value and those of which it must be one for a test to be true (or false), empty for other tests."""
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
