"""The device that a line means. A run on a CPU has only one device, so the source decides."""

from __future__ import annotations

import ast
import linecache
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import islice
from types import CodeType, FrameType
from typing import NamedTuple

HOST = "host"
ACCELERATOR = "accelerator"
SAME = "same"  # the device of the tensor whose `device` was read last

Span = tuple[int | None, int | None, int | None, int | None]  # lines and columns, as in `co_positions`

_CALLERS = 16  # callers to ask for the value of a parameter


class Named(NamedTuple):
    """A device that is the value of a name without an assignment, such as a parameter."""

    name: str


_CPU = ("'cpu'", "torch.device('cpu')")
_FUNCTIONS = ("to", "to_empty", "as_tensor", "asarray", "load")


class Scope:
    """A module, a class or a function, and the names that it binds.

    Args:
        node: the definition.
        outer: the scope around it, or None for a module.

    Attributes:
        outer: the scope around it.
        values: the values that are assigned to each name; none if it is bound otherwise, as a parameter is.
    """

    def __init__(self, node: ast.AST, outer: Scope | None) -> None:
        self.outer = outer
        self.values: dict[str, list[ast.expr]] = defaultdict(list)
        self._is_class = isinstance(node, ast.ClassDef)
        arguments = getattr(node, "args", None)
        if isinstance(arguments, ast.arguments):
            every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            self.values.update((argument.arg, []) for argument in every)

    def find(self, name: str) -> list[ast.expr]:
        """Return the values of a name where this scope uses it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values and (scope is self or not scope._is_class):
                return scope.values[name]
            scope = scope.outer
        return []

    def top(self) -> Scope:
        """Return the scope of the module."""
        return self if self.outer is None else self.outer.top()


class Module:
    """The devices in the source of one file.

    Args:
        file: the path of the file, which `linecache` reads; for a rewritten module, the user's own source.
    """

    def __init__(self, file: str) -> None:
        self._calls: dict[int, list[ast.Call]] = defaultdict(list)
        self._functions: dict[tuple[str, int], tuple[ast.arguments, Scope]] = {}
        self._scopes: dict[ast.Call, Scope] = {}
        self._attributes: dict[str, list[ast.expr]] = defaultdict(list)
        try:
            tree = ast.parse("".join(linecache.getlines(file)))
        except (SyntaxError, ValueError):
            return
        self._read(tree, Scope(tree, None))

    def _read(self, node: ast.AST, scope: Scope) -> None:
        """Record the calls, functions and assignments below a node."""
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, ast.Call):
                self._scopes[child] = scope
                for line in range(child.lineno, (child.end_lineno or child.lineno) + 1):
                    self._calls[line].append(child)
            elif isinstance(child, ast.Assign):
                for target in child.targets:
                    values = scope.values if isinstance(target, ast.Name) else self._attributes
                    values[ast.unparse(target)].append(child.value)
            elif isinstance(child, ast.Global):
                scope.values.update((name, scope.top().values[name]) for name in child.names)
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                inner = Scope(child, scope)
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                    self._functions[child.name, first] = (child.args, scope)
            self._read(child, inner)

    def at(self, line: int, span: Span | None) -> str | Named | None:
        """Return the device that the call at a line means.

        Args:
            line: the line number, from 1.
            span: the position of the call, or None if it is unknown. It may be wrong in a rewritten module.

        Returns:
            HOST, ACCELERATOR, SAME or the name of the device; None if the line names no device, or several.
        """
        calls = self._calls.get(line, [])
        exact = [call for call in calls if _is_at(call, span)]
        meant = {self._call(call) for call in exact} - {None} or {self._call(call) for call in calls} - {None}
        return meant.pop() if len(meant) == 1 else None

    def passed(self, line: int, code: CodeType, name: str) -> str | Named:
        """Return the device that a call passes as a parameter.

        Args:
            line: the line of the call, from 1.
            code: the code of the called function.
            name: the name of the parameter.

        Returns:
            HOST, ACCELERATOR, SAME or the name of the device.
        """
        found = set()
        for call in self._calls.get(line, []):
            if ast.unparse(call.func).rpartition(".")[2] == code.co_name:
                argument = _argument(call, code, name)
                if argument is not None:
                    found.add(self._device(argument, self._scopes[call]))
                elif _spreads(call):
                    found.add(ACCELERATOR)
                else:
                    found.add(_module(code.co_filename).default(code, name))
        return found.pop() if len(found) == 1 else ACCELERATOR

    def default(self, code: CodeType, name: str) -> str | Named:
        """Return the device that is the default of a parameter.

        Args:
            code: the code of a function of this module.
            name: the name of the parameter.
        """
        arguments, scope = self._functions.get((code.co_name, code.co_firstlineno), (None, None))
        if arguments is None or scope is None:
            return ACCELERATOR
        positional = (*arguments.posonlyargs, *arguments.args)
        defaults = zip(reversed(positional), reversed(arguments.defaults), strict=False)
        named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        for argument, value in (*defaults, *named):
            if argument.arg == name and value is not None:
                return self._device(value, scope)
        return ACCELERATOR

    def _call(self, call: ast.Call) -> str | Named | None:
        name = ast.unparse(call.func)
        if "cuda" in name:
            return ACCELERATOR
        for device in _devices(call, name.rpartition(".")[2]):
            return self._device(device, self._scopes[call])
        return None

    def _device(self, device: ast.expr, scope: Scope) -> str | Named:
        if any(isinstance(node, (ast.IfExp, ast.BoolOp)) for node in ast.walk(device)):
            return ACCELERATOR
        text = ast.unparse(device)
        if "cpu" in text.lower():
            return HOST
        values = scope.find(text) if isinstance(device, ast.Name) else self._attributes.get(text, [])
        if values and all(ast.unparse(value) in _CPU for value in values):
            return HOST
        if isinstance(device, ast.Name) and not values:
            return Named(device.id)
        return SAME if text.endswith(".device") else ACCELERATOR


def _devices(call: ast.Call, name: str) -> Iterator[ast.expr]:
    yield from (keyword.value for keyword in call.keywords if keyword.arg in ("device", "map_location"))
    if name in _FUNCTIONS:
        yield from call.args[:1]
    elif name == "type":
        yield from (argument for argument in call.args if "cuda" in ast.unparse(argument))


def _argument(call: ast.Call, code: CodeType, name: str) -> ast.expr | None:
    """Return the argument of a call for a parameter, or None if it is not written there."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    bound = isinstance(call.func, ast.Attribute) and code.co_varnames[0] in ("self", "cls")
    position = code.co_varnames.index(name) - bound
    before = call.args[: position + 1]
    if position >= len(call.args) or any(isinstance(argument, ast.Starred) for argument in before):
        return None
    return before[-1]


def _is_at(call: ast.Call, span: Span | None) -> bool:
    return (call.lineno, call.end_lineno, call.col_offset, call.end_col_offset) == span


def _spreads(call: ast.Call) -> bool:
    """Return whether a call spreads arguments, which it does not name."""
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    return starred or any(keyword.arg is None for keyword in call.keywords)


@cache
def _module(file: str) -> Module:
    return Module(file)


def meant(frame: FrameType) -> tuple[str | None, FrameType]:
    """Return the device that the running call of a frame means.

    The device may be a parameter of the function. Then the argument in the call of the function decides.

    Args:
        frame: the frame that calls torch.

    Returns:
        HOST, ACCELERATOR or SAME, None if the source names no device, or several; and the frame whose source
        names the device.
    """
    found = _at(frame.f_code, frame.f_lineno, frame.f_lasti)
    for _ in range(_CALLERS):
        if not isinstance(found, Named):
            return found, frame
        while found.name in frame.f_code.co_freevars and frame.f_back is not None:  # a comprehension
            frame = frame.f_back
        code, caller = frame.f_code, frame.f_back
        count = code.co_argcount + code.co_kwonlyargcount
        if caller is None or found.name not in code.co_varnames[:count]:
            break
        found, frame = _module(caller.f_code.co_filename).passed(caller.f_lineno, code, found.name), caller
    return ACCELERATOR, frame


@lru_cache(maxsize=4096)
def _at(code: CodeType, line: int, instruction: int) -> str | Named | None:
    """Return the device that the call at an instruction means."""
    span = None
    if sys.version_info >= (3, 11):
        span = next(islice(code.co_positions(), instruction // 2, None), None)
        line = (span and span[0]) or line
    return _module(code.co_filename).at(line, span)
