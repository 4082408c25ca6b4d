"""Refusals to run without CUDA: whether one can go, and why it can't."""

from __future__ import annotations

import ast
import os.path
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import islice

from devicefix.devices.context import Context
from devicefix.facts.defaults import Defaults
from devicefix.facts.exports.imports import modules_of
from devicefix.facts.flow.parameters import reads_of
from devicefix.facts.path_conditions import Condition, conditions_on
from devicefix.facts.refusals import PRINTING, returns
from devicefix.facts.scopes import FUNCTIONS, Function
from devicefix.facts.values import device_named, last_name
from devicefix.rules.shared.libraries import CudaLibraries

MESSAGE = "the program stops here if CUDA is not available"
PERHAPS = "the program may stop here if CUDA is not available"
FAILS = "this check fails if CUDA is not available"
_CAUGHT = "the program may catch the check's error"

# An option or attribute that is called so may hold a request for a device.
_REQUEST = re.compile(r"cuda|gpu|cpu|device|nccl|accelerat", re.I)
_TEST_FILE = re.compile(r"(?:test_.*|.*_test|conftest)\.py\Z")
_TEST_LIBRARIES = ("pytest", "unittest")
_MEANT_TO_BE_CAUGHT = {"ImportError", "ModuleNotFoundError"}
_CALLERS = 3  # how many functions to follow, each called by the next


class Request(IntEnum):
    """Who asked for the GPU where a program refuses to run without one.

    Attributes:
        NONE: nobody: the program gets there whatever its user asks for, or by default.
        OPEN: perhaps the user, by an option whose default is not known.
        TYPED: the user, whose request can't be met.
    """

    NONE = 0
    OPEN = 1
    TYPED = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """The finding that a refusal leads to.

    Attributes:
        message: what is wrong and what to do.
        removable: whether the refusal can go.
        why: why it is not safe to remove it; empty if it is.
    """

    message: str
    removable: bool = False
    why: str = ""


class Refusals:
    """The refusals of one module that are never reached on a machine with CUDA.

    Args:
        context: the context of the module.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.facts = context.facts
        self.libraries = CudaLibraries(context)
        self._defaults = Defaults(context.facts, context.project.default_of_option)
        self._ends: dict[int, list[tuple[int, Condition]]] = {}  # by block
        self._requests: dict[tuple[ast.AST, int], Request] = {}
        self._caught: dict[tuple[ast.AST, str | None, int], bool] = {}

    def verdict(self, site: ast.AST, condition: Condition, error: str | None) -> Verdict | None:
        """Return what to do with a refusal, None where it is right.

        It is safe to remove unless its user typed a request for a GPU, or the program has a path without CUDA
        that begins with its error. With CUDA it is never reached.

        Args:
            site: the statement or expression that refuses.
            condition: the test that it depends on, and the value that leads to it.
            error: the name of the class of its error, None if that is not known.
        """
        request = self._request(site, _CALLERS, condition)
        if request is Request.TYPED or self.facts.guards.fallbacks.of(site, error):
            return None
        if self.in_test(site):
            return Verdict(
                "the test stops here if CUDA is not available; skip the test, or let it run on a CPU"
            )
        # The test may ask for something else as well, or the user for the GPU.
        problem = PERHAPS if request is Request.OPEN or self._open(condition[0]) else MESSAGE
        library = self.libraries.needed_by(self.function(site), site)
        if library is not None:
            needs = "needs" if self.libraries.required is not None else "may need"
            return Verdict(f"{problem}; this code {needs} `{library}`, so add a CPU path")
        if error in _MEANT_TO_BE_CAUGHT:
            return Verdict(
                f"{problem.replace('program', 'program, or the import of this file,')}; remove the check unless other code relies on it"
            )
        doubt = self._doubt(site, condition, error, request)
        ends = self.facts.guards.refusals
        if doubt == _CAUGHT or not all(ends.refuses(each.body) for each in ends.handlers(site, error)):
            problem = FAILS  # the program may go on
        return Verdict(f"{problem}; remove the check", removable=True, why=doubt)

    def _doubt(self, site: ast.AST, condition: Condition, error: str | None, request: Request) -> str:
        """Return why it may be wrong to remove a refusal, an empty text if it is not."""
        if request is Request.OPEN:
            return "the user may have asked for a GPU"
        if self._depends_on_more(condition[0]):
            return "the check rejects only some uses, which may need CUDA"
        if self._only_checks(self.function(site), site):
            return "this function only validates requirements of other code, which may need CUDA"
        return _CAUGHT if self._is_caught(site, error, _CALLERS) else ""

    def is_requested(self, site: ast.AST) -> bool:
        """Return whether a condition around a place names a device."""
        tests = (test for test, truth in self._path(site) if self._defaults.truth(test) is not truth)
        parts = (part for test in tests for part in self._open(test))
        return any(map(_REQUEST.search, map(self.context.source.code, parts)))

    def in_test(self, site: ast.AST) -> bool:
        """Return whether a node is part of a test that pytest or unittest runs.

        https://docs.pytest.org/en/stable/explanation/goodpractices.html#conventions-for-python-test-discovery
        """
        if self._uses_test_library:
            return True
        functions = self.facts.tree.of_kind(ast.FunctionDef)
        in_file = _TEST_FILE.match(os.path.basename(self.context.devices.path))
        return in_file is not None and any(each.name.startswith("test_") for each in functions)

    @cached_property
    def _uses_test_library(self) -> bool:
        roots = {name.partition(".")[0] for each in self.facts.tree.imports for name in modules_of(each)}
        return not roots.isdisjoint(_TEST_LIBRARIES)

    def function(self, site: ast.AST) -> ast.AST:
        """Return the function that a node is in, or the module."""
        *_, (_, outermost) = self._around(site)
        return outermost

    def _depends_on_more(self, test: ast.expr) -> bool:
        """Return whether a test asks for something else than CUDA and numbers, as in `fused and not available`."""
        parts = (part for part in self._open(test) if not _compares_number(part))
        return any(self._defaults.truth(part) is None for part in parts)

    def _only_checks(self, function: ast.AST, site: ast.AST) -> bool:
        """Return whether a function does nothing but check several things, for callers that are not known."""
        if not isinstance(function, Function) or reads_of(self.facts.tree, function):
            return False
        checks = [node for node in ast.walk(function) if isinstance(node, (ast.Raise, ast.Assert))]
        others = [check for check in checks if site not in (check, self.facts.tree.parents[check])]
        return bool(others) and not any(_does_work(node, function.name) for node in ast.walk(function))

    def _request(self, site: ast.AST, callers: int, *conditions: Condition) -> Request:
        """Return who asked for the GPU where a place is reached.

        Args:
            site: the place.
            callers: how many functions to follow to their callers.
            conditions: more conditions on which it is reached.
        """
        asked = (self._asked(*each) for each in (*conditions, *self._path(site)))
        return max(*asked, Request.NONE, self._request_of_callers(self.function(site), callers))

    def _request_of_callers(self, function: ast.AST, callers: int) -> Request:
        """Return who asked for the GPU where a function is called, as far as its module shows."""
        key = function, callers
        if key not in self._requests:
            uses = reads_of(self.facts.tree, function) if callers else []
            asked = (self._request(use, callers - 1) for use in uses)
            self._requests[key] = min(asked, default=Request.NONE)
        return self._requests[key]

    def _asked(self, test: ast.expr, truth: bool) -> Request:
        """Return who asked for the GPU where a test has a value."""
        parts = self._open(test)
        kinds = [part for part in parts if self._is_kind(part)]
        chosen = [part for part in kinds if "cpu" not in self.context.source.code(part)]
        if chosen:
            return Request.TYPED  # the devices that the program chooses itself are findings of their own
        named = kinds or [part for part in parts if self._names_request(part)]
        by_default = self._defaults.truth(test) if named else None
        if by_default is not None:
            return Request.NONE if by_default is truth else Request.TYPED
        if any("cpu" in self.context.source.code(part) for part in named):
            return Request.TYPED  # the program has a switch for the CPU
        return Request.OPEN if any(map(self._is_flag, named)) else Request.NONE

    def _is_kind(self, part: ast.expr) -> bool:
        """Return whether a part of a test asks for the type of a device: `device == "cuda"`."""
        match part:
            case ast.Compare(left=left, ops=[_], comparators=[right]):
                elements = right.elts if isinstance(right, (ast.List, ast.Tuple, ast.Set)) else [right]
                return any(self._is_name(each) for each in (left, *elements))
            case ast.Call(func=ast.Attribute(attr="startswith"), args=[text]):
                return self._is_name(text)
        return False

    def _is_name(self, node: ast.expr) -> bool:
        text = node.value if isinstance(node, ast.Constant) else device_named(self.facts, node)
        return isinstance(text, str) and text.partition(":")[0] in ("cuda", "cpu", "gpu")

    def _names_request(self, part: ast.expr) -> bool:
        """Return whether a part of a test reads what is called a request.

        It may be an option, an attribute or a key, or a name whose default is known.
        """
        for node in ast.walk(part):
            match node:
                case ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
                    if _REQUEST.search(name):
                        return True
                case ast.Name(id=name) if _REQUEST.search(name) and self._defaults.truth(node) is not None:
                    return True
        return False

    def _is_flag(self, part: ast.expr) -> bool:
        """Return whether a part of a test is true or false by itself, and no number or list of GPUs."""
        if not isinstance(part, (ast.Attribute, ast.Subscript)):
            return False
        name = last_name(part)
        indexed = self.facts.tree.nodes_with(f"{name}[") if name else ()
        return not any(isinstance(node, ast.Subscript) and last_name(node.value) == name for node in indexed)

    def _around(self, site: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Yield pairs of a child and its parent, from a node up to its function or the module."""
        for child, parent in self.facts.tree.ancestors(site):
            yield child, parent
            if isinstance(parent, FUNCTIONS):
                return

    def _path(self, site: ast.AST) -> Iterator[Condition]:
        """Yield the conditions on which a node of a function, or of the module, is reached.

        Of those that may end a block, they are the first one and the first one that names a device.
        """
        for child, parent in self._around(site):
            yield from conditions_on(child, parent)
            if isinstance(child, ast.stmt):
                block, place = self.facts.tree.block(child), self.facts.tree.position(child)
                if id(block) not in self._ends:
                    self._ends[id(block)] = list(self._first_ends(block))
                yield from (condition for before, condition in self._ends[id(block)] if before < place)

    def _first_ends(self, block: list[ast.stmt]) -> Iterator[tuple[int, Condition]]:
        """Yield the first condition that may end a block, and the first that names a device, with their places."""
        tests = ((place, each) for place, each in enumerate(block) if isinstance(each, ast.If))
        ends = [(place, each) for place, each in tests if returns(each.body) or returns(each.orelse)]
        requests = (each for each in ends if any(map(self._names_request, self._open(each[1].test))))
        for place, statement in dict.fromkeys((*ends[:1], *islice(requests, 1))):
            yield place, (statement.test, not returns(statement.body))

    def _open(self, test: ast.expr) -> list[ast.expr]:
        """Return the conditions in a test, without the question whether the module is the program."""
        conditions = self.facts.guards.conditions(test)
        computed = (each for each in conditions if not isinstance(each, ast.Constant))
        return [each for each in computed if "__name__" not in self.context.source.code(each)]

    def _is_caught(self, site: ast.AST, error: str | None, callers: int) -> bool:
        """Return whether a handler, perhaps of a caller, has another result where a node raises an error."""
        if self.facts.guards.fallbacks.may_replace(site, error):
            return True
        key = self.function(site), error, callers
        if key not in self._caught:
            uses = reads_of(self.facts.tree, key[0]) if callers else []
            self._caught[key] = self._is_tried(key[0]) or any(
                self._is_caught(use, error, callers - 1) for use in uses
            )
        return self._caught[key]

    def _is_tried(self, function: ast.AST) -> bool:
        """Return whether another file catches the errors of a function or, for the module, of its import."""
        path = self.context.devices.path
        folder, name = os.path.split(os.path.splitext(os.path.normpath(path))[0])
        names = [os.path.basename(folder) if name == "__init__" else name]
        if isinstance(function, Function):
            owner = self.facts.tree.parents.get(function)
            names = [function.name, *([owner.name] if isinstance(owner, ast.ClassDef) else [])]
        return any(self.context.project.is_tried(path, each) for each in names)


def _compares_number(test: ast.expr) -> bool:
    """Return whether a test compares something with a number or None."""
    sides = test.comparators if isinstance(test, ast.Compare) else ()
    return any(isinstance(each, ast.Constant) and not isinstance(each.value, str) for each in sides)


def _does_work(node: ast.AST, own: str) -> bool:
    """Return whether a statement does more than check, bind and print: it calls a function, or returns a value.

    Args:
        node: the statement.
        own: the name of the function that it is in, which may call itself.
    """
    match node:
        case ast.Expr(value=ast.Call(func=function)):
            name = last_name(function)
            return name != own and not name.startswith(tuple(PRINTING))
        case ast.Return(value=value):
            return value is not None and not isinstance(value, ast.Constant)
    return isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await))
