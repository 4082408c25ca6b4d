"""Refusals to run without CUDA: whether one can go, and why it can't."""

from __future__ import annotations

import ast
import os.path
import re
from collections.abc import Iterator
from dataclasses import dataclass

from devicefix.devices.context import Context
from devicefix.facts.refused_devices import is_refused
from devicefix.facts.scopes import FUNCTIONS
from devicefix.model import Safety
from devicefix.rules.shared.libraries import CudaLibraries

MESSAGE = "stops the program if CUDA is not available"

# A condition that holds one of these may ask for a device. A request that can't be met keeps its error.
_REQUEST = re.compile(r"cuda|gpu|cpu|device|nccl|accelerat", re.I)
_TEST_FILE = re.compile(r"(?:test_.*|.*_tests?|conftest)\.py\Z")
_TEST_FOLDERS = {"test", "tests"}
_MEANT_TO_BE_CAUGHT = {"ImportError", "ModuleNotFoundError"}
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
        self._groups: dict[int, int] = {}  # by block, the place of the last statement that makes a group
        self._ends: dict[int, list[tuple[int, ast.expr]]] = {}  # by block

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
            return Verdict("stops the test if CUDA is not available; skip the test, or let it run on a CPU")
        library = self.libraries.needed_by(self.function(site), site)
        if library is not None:
            return Verdict(f"{MESSAGE}, and this code needs `{library}`; add a CPU path")
        if refusals.handlers(site, error):
            return Verdict(f"{MESSAGE}; remove the check and the handler of its error")
        if error in _MEANT_TO_BE_CAUGHT:
            return Verdict(
                "stops the program, or the import of this file, if CUDA is not available; remove the check unless a caller needs it"
            )
        asked = not self._precedes_group(site)
        if self.facts.guards.conditions(test) or (asked and self._conditions(site)):
            return Verdict(
                "may stop the program if CUDA is not available; remove the check unless the user asks for a GPU",
                Safety.UNSAFE,
            )
        if not self._is_reached(site, error, _CALLERS, asked=asked):
            return Verdict(f"{MESSAGE}; remove the check unless a caller catches its error", Safety.UNSAFE)
        return Verdict(f"{MESSAGE}; remove the check", Safety.SAFE)

    def _precedes_group(self, site: ast.AST) -> bool:
        """Return whether a statement is followed by one that makes a process group: what leads to both asks for that.

        A GPU is not what is asked for then; the group is made with gloo on a CPU.
        """
        if not isinstance(site, ast.stmt):
            return False
        block = self.facts.tree.block(site)
        if id(block) not in self._groups:
            places = (place for place, each in enumerate(block) if self._makes_group(each))
            self._groups[id(block)] = max(places, default=-1)
        return self.facts.tree.position(site) < self._groups[id(block)]

    def _makes_group(self, statement: ast.stmt) -> bool:
        return (
            isinstance(statement, (ast.Expr, ast.Assign))
            and isinstance(statement.value, ast.Call)
            and self.facts.call(statement.value, *_GROUPS)
        )

    def is_requested(self, site: ast.AST, *conditions: ast.expr) -> bool:
        """Return whether a refusal answers a request for a device: a condition in or around it names one.

        Where it names none, the refusal is reported, but not removed either.
        """
        return any(map(self._requests, (*conditions, *self._conditions(site))))

    def _requests(self, condition: ast.expr) -> bool:
        return _REQUEST.search(self.context.source.code(condition)) is not None

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
        """Return the conditions on which a node of a function, or of the module, is reached.

        Of those that may end a block, they are the first one and the first one that names a device.
        """
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
                block, place = self.facts.tree.block(child), self.facts.tree.position(child)
                if id(block) not in self._ends:
                    self._ends[id(block)] = list(self._first_ends(block))
                found += (condition for before, condition in self._ends[id(block)] if before < place)
        return found

    def _first_ends(self, block: list[ast.stmt]) -> Iterator[tuple[int, ast.expr]]:
        """Yield the first condition that may end a block, and the first that names a device, with their places."""
        conditions = (
            (place, condition)
            for place, statement in enumerate(block)
            if isinstance(statement, ast.If) and _may_leave(statement)
            for condition in self._open(statement.test)
        )
        for number, (place, condition) in enumerate(conditions):
            requests = self._requests(condition)
            if requests or number == 0:
                yield place, condition
            if requests:
                return

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


def _may_leave(statement: ast.If) -> bool:
    """Return whether a branch ends the block around it."""
    clauses = (statement.body, statement.orelse)
    return any(clause and isinstance(clause[-1], (ast.Return, ast.Break, ast.Continue)) for clause in clauses)


def refusing(context: Context, device: ast.expr) -> ast.stmt | None:
    """Return the first check of a device, or of its name, that ends the program on the CPU, if there is one.

    Args:
        context: the context of the module.
        device: the expression whose value is the device or its name.
    """
    found = [use for use in _uses(context, device) if is_refused(context.facts, use)]
    first = min(found, key=lambda use: (use.lineno, use.col_offset), default=None)
    return None if first is None else context.facts.tree.statement(first)


def refusing_function(context: Context, device: ast.expr) -> str | None:
    """Return the name of a function of another file that gets a device and ends the program on the CPU, or None."""
    for use in _uses(context, device):
        parent = context.facts.tree.parents.get(use)
        call = context.facts.tree.parents.get(parent) if isinstance(parent, ast.keyword) else parent
        if isinstance(call, ast.Call) and call.func is not use:
            place = parent.arg if isinstance(parent, ast.keyword) else call.args.index(use)
            name = context.facts.resolve(call.func)
            if name is not None and place is not None:
                if context.project.refuses_cpu(context.devices.path, name, place):
                    return name.rpartition(".")[2]
    return None


def _uses(context: Context, device: ast.expr) -> Iterator[ast.expr]:
    """Yield the uses of a device, and those of `torch.device(name)` of its name."""
    for use in context.uses.of(device).uses:
        yield use
        call = context.facts.tree.parents.get(use)
        if isinstance(call, ast.Call) and use in call.args and context.facts.call(call, "torch.device"):
            yield from context.uses.of(call).uses
