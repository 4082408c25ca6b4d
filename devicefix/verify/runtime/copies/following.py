"""Reads of NumPy arrays, which no call of torch shows: whether the source certainly has or lacks them."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

from devicefix.verify.runtime.copies.functions import words

_FRAMES = 16  # callers to look at
_ITEMS = 64  # the size up to which a list or dictionary is searched

_SHAPE = words("shape dtype ndim size nbytes itemsize strides")
_VIEWS = words("reshape ravel transpose squeeze swapaxes view")
_METHODS = words("""
    all any argmax argmin argsort astype clip copy cumprod cumsum dot flatten item max mean min nonzero prod
    repeat round std sum take tobytes tolist trace var
""")
_BUILTINS = words("abs float int list print repr str sum")
_NUMPY = words("""
    abs all allclose amax amin any argmax argmin array array_equal average concatenate copy count_nonzero dot
    dstack exp hstack isclose isnan log matmul max mean median min percentile quantile save savetxt savez sort
    sqrt stack std sum unique var vstack
""")
_WHOLE = words("array concatenate dstack hstack mean print repr save stack str sum vstack")
_ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await)
_EXITS = words("exit quit sys.exit os._exit")

_SNAPSHOTS = frozenset(
    ("dir", "eval", "exec", "locals", "vars")
)  # show the dictionary of a frame's variables


class Variable(NamedTuple):
    """A variable that has an array, or a list or dictionary with it.

    Attributes:
        name: its name.
        keys: the keys of the array in its value; none if that is the array itself.
    """

    name: str
    keys: tuple[Any, ...] = ()


class _Found:
    """The variables of the running functions that have an array, and their values."""

    def __init__(self) -> None:
        self.variables: list[tuple[FrameType, int, Variable]] = []  # with the line that is running
        self._held: list[Any] = []  # one entry for each reference that is known
        self._modules: list[Any] = []  # the global variables that were looked at, which frames can share

    def look(self, frame: FrameType, shows: Callable[[Any], bool]) -> None:
        """Find the variables of a frame."""
        code, held = frame.f_code, frame.f_locals
        if held is frame.f_globals:
            if any(held is known for known in self._modules):
                return
            self._modules.append(held)
        for name in list(held):
            keys = _keys(held[name], shows)
            if keys or shows(held[name]):
                self.variables.append((frame, frame.f_lineno, Variable(name, keys)))
                self._held += [held[name], *(held[name][key] for key in keys)]
        if code.co_flags & inspect.CO_OPTIMIZED and isinstance(held, dict):
            held.clear()  # it is a copy, which would keep the variables' values alive

    def read(self) -> bool | None:
        """Return whether a variable is certainly read before others change what it has; None if unknown."""
        if any(_others_change(frame.f_code, variable) for frame, _, variable in self.variables):
            return None
        for frame, line, variable in self.variables:
            names = frozenset(other.name for where, _, other in self.variables if where is frame)
            if _follows(frame.f_code, line, variable, names, _readers(frame)):
                return True
        frames = {frame for frame, _, _ in self.variables}
        if len(frames) != 1 or (frame := frames.pop()).f_code.co_name != "<module>":
            return None
        used = (_is_used(frame.f_code, line, variable.name) for _, line, variable in self.variables)
        return None if any(used) else False

    def is_shared(self, tensors: int) -> bool:
        """Return whether something else has one of the values, and so may change it.

        Args:
            tensors: how many tensors hold the array.
        """
        for value in list({id(value): value for value in self._held}.values()):
            known = sum(value is held for held in self._held)
            is_array = type(value).__module__ == "numpy"
            # The list of held values, that of different ones, `value` and the argument each refer to it.
            if sys.getrefcount(value) > 2 * known + 3 + (tensors if is_array else 0):
                return True
            base = getattr(value, "base", None)
            if type(base).__module__ == "numpy" and not any(base is held for held in self._held):
                if sys.getrefcount(base) > 3:  # the array, `base` and the argument
                    return True
        return False


def read_follows(
    shows: Callable[[Any], bool], is_project: Callable[[str], bool], tensors: int = 0
) -> bool | None:
    """Return whether the program reads an array behind the statements that are running.

    Args:
        shows: whether a value is the array.
        is_project: whether a file is the user's.
        tensors: how many tensors hold the array.

    Returns:
        True if it certainly does, False if it certainly does not, None if the source does not say.
    """
    found = _Found()
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        while frame is not None and not is_project(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            break
        if _SNAPSHOTS.isdisjoint(frame.f_code.co_names):
            found.look(frame, shows)
        frame = frame.f_back
    return None if found.is_shared(tensors) else found.read()


def _keys(value: Any, shows: Callable[[Any], bool]) -> tuple[Any, ...]:
    """Return the keys of a list or dictionary at which there is an array."""
    if not isinstance(value, (list, tuple, dict)) or len(value) > _ITEMS:
        return ()
    every: Iterable[Any] = value if isinstance(value, dict) else range(len(value))
    return tuple(key for key in every if shows(value[key]))


def _readers(frame: FrameType) -> frozenset[str]:
    """Return the names of functions that read the arrays that they get, as a frame uses them."""
    names = frame.f_globals
    numpy = sys.modules.get("numpy")
    libraries = [name for name in list(names) if names[name] is numpy]
    return frozenset(
        (*(name for name in _BUILTINS if name not in names), *(f"{n}.{f}" for n in libraries for f in _NUMPY))
    )


@cache
def _tree(file: str) -> ast.Module:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _body(code: CodeType) -> list[ast.stmt]:
    """Return the statements of a function or module; none if they are unknown."""
    tree = _tree(code.co_filename)
    if code.co_name == "<module>":
        return tree.body
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            if min([node.lineno, *(d.lineno for d in node.decorator_list)]) == code.co_firstlineno:
                return node.body
    return []


@lru_cache(maxsize=1024)
def _follows(
    code: CodeType, line: int, variable: Variable, names: frozenset[str], readers: frozenset[str]
) -> bool:
    return bool(_Reading(variable, names, readers).behind(_body(code), line))


@lru_cache(maxsize=1024)
def _others_change(code: CodeType, variable: Variable) -> bool:
    """Return whether other functions may change what a variable has. They may append to a list."""
    if variable.name in code.co_freevars:
        return True
    for function in ast.walk(ast.Module(_body(code), [])):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        parts = list(ast.walk(function))
        outer = any(
            isinstance(part, (ast.Global, ast.Nonlocal)) and variable.name in part.names for part in parts
        )
        if not outer and any(_binds(part, variable.name) for part in parts):
            continue  # a variable of its own
        added = {
            part.value for part in parts
            if isinstance(part, ast.Attribute) and part.attr in ("append", "extend") and variable.keys
        }  # fmt: skip
        if outer or any(_uses(part, variable.name) and part not in added for part in parts):
            return True
    return False


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.arg):
        return node.arg == name
    return isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)


def _uses(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


@lru_cache(maxsize=1024)
def _is_used(code: CodeType, line: int, name: str) -> bool:
    """Return whether a module uses a variable in or behind the statement that is running."""
    rest = (statement for statement in _body(code) if (statement.end_lineno or statement.lineno) >= line)
    parts = [part for statement in rest for part in ast.walk(statement)]
    return not parts or any(
        _uses(part, name) and not isinstance(part.ctx, ast.Store)
        if isinstance(part, ast.Name)
        else isinstance(part, ast.AugAssign) and _uses(part.target, name)
        for part in parts
    )


class _Reading:
    """The effects of statements on an array.

    Args:
        variable: the variable that has it.
        names: the names of all variables that have it.
        readers: the names of functions that read the arrays that they get.
    """

    def __init__(self, variable: Variable, names: frozenset[str], readers: frozenset[str]) -> None:
        self._name, self._keys = variable
        self._names = names
        self._readers = readers

    def behind(self, block: list[ast.stmt], line: int) -> bool | None:
        """Return whether the array is certainly read behind a line of a block.

        Returns:
            False if it may not be; None if the block ends before this is known.
        """
        for index, statement in enumerate(block):
            if statement.lineno <= line <= (statement.end_lineno or statement.lineno):
                found = self._inside(statement, line)
                return self._run(block[index + 1 :]) if found is None else found
        return False

    def _inside(self, statement: ast.stmt, line: int) -> bool | None:
        """Return the same for the rest of the running statement."""
        if isinstance(statement, (ast.If, ast.For, ast.While, ast.With)):
            for block in (statement.body, getattr(statement, "orelse", [])):
                if block and block[0].lineno <= line <= (block[-1].end_lineno or block[-1].lineno):
                    found = self.behind(block, line)
                    again = found is None and isinstance(statement, (ast.For, ast.While))
                    return False if again and not self._leaves(statement) else found
            return False
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)):
            return None if self._leaves(statement) else False
        return False

    def _run(self, statements: Iterable[ast.stmt]) -> bool | None:
        """Return whether statements that run one after the other certainly read the array."""
        for statement in statements:
            if any(self._reads(expression) for expression in _first(statement)):
                return True
            if isinstance(statement, ast.With):
                if not all(self._leaves(item) for item in statement.items):
                    return False
                found = self._run(statement.body)
                if found is not None:
                    return found
            elif not self._leaves(statement):
                return False
        return None

    def _leaves(self, node: ast.AST) -> bool:
        """Return whether code leaves the array and its variables alone, and goes on behind its end."""
        harmless = set()
        for part in ast.walk(node):
            if isinstance(part, _ENDS) or (isinstance(part, ast.Call) and ast.unparse(part.func) in _EXITS):
                return False
            if isinstance(part, ast.Attribute) and part.attr in _SHAPE:
                harmless.add(part.value)
            elif isinstance(part, ast.Call) and ast.unparse(part.func) == "len":
                harmless.update(part.args)
            elif isinstance(part, ast.Name) and part.id in self._names and part not in harmless:
                return False
        return True

    def _reads(self, node: ast.expr) -> bool:
        """Return whether an expression certainly reads the array."""
        return self._is_read(node) or any(self._reads(part) for part in _evaluated(node))

    def _is_read(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call):
            return self._is_read_by_call(node)
        if isinstance(node, ast.BinOp):
            return self._is_array(node.left) or self._is_array(node.right)
        if isinstance(node, ast.UnaryOp):
            return not isinstance(node.op, ast.Not) and self._is_array(node.operand)
        if isinstance(node, ast.Compare):
            compares = not isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn))
            return compares and (self._is_array(node.left) or self._is_array(node.comparators[0]))
        return isinstance(node, ast.FormattedValue) and self._is_array(node.value)

    def _is_read_by_call(self, call: ast.Call) -> bool:
        if any(keyword.arg in ("copy", "out") for keyword in call.keywords):
            return False
        if isinstance(call.func, ast.Attribute) and self._is_array(call.func.value):
            return call.func.attr in _METHODS
        name = ast.unparse(call.func)
        whole = name.rpartition(".")[2] in _WHOLE
        return name in self._readers and any(
            self._is_array(argument) or (whole and self._is_collection(argument)) for argument in call.args
        )

    def _is_collection(self, node: ast.expr) -> bool:
        return bool(self._keys) and isinstance(node, ast.Name) and node.id == self._name

    def _is_array(self, node: ast.expr) -> bool:
        """Return whether an expression is the array, or a view of all of it."""
        if isinstance(node, ast.Name):
            return node.id == self._name and not self._keys
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            return self._is_collection(node.value) and key in self._keys
        if isinstance(node, ast.Attribute):
            return node.attr == "T" and self._is_array(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.attr in _VIEWS and self._is_array(node.func.value)
        return False


def _first(statement: ast.stmt) -> list[ast.expr]:
    """Return the expressions that a statement certainly evaluates, and before it does anything else."""
    if isinstance(statement, (ast.If, ast.While, ast.Assert)):
        return [statement.test]
    if isinstance(statement, ast.For):
        return [statement.iter]
    if isinstance(statement, ast.With):
        return [statement.items[0].context_expr]
    if isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)):
        return [statement.value] if statement.value is not None else []
    return []


def _evaluated(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of an expression that are certainly evaluated with it."""
    if isinstance(node, ast.IfExp):
        yield node.test
    elif isinstance(node, ast.BoolOp):
        yield node.values[0]
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        yield node.generators[0].iter
    elif isinstance(node, ast.Compare):
        yield from (node.left, node.comparators[0])
    elif not isinstance(node, ast.Lambda):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.keyword):
                yield child.value
            elif isinstance(child, ast.expr):
                yield child
