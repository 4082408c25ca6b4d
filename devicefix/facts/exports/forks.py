"""Find what runs in the processes that a module forks: CUDA does not survive a fork once it was asked for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from copy import copy

from devicefix.facts.exports.export import of_bytes
from devicefix.facts.exports.imports import modules_of
from devicefix.facts.scopes import with_defaults
from devicefix.facts.tree import walk
from devicefix.facts.values import last_name

UNKNOWN = ""  # any module that the file imports
DEVICES = (b"cuda", b"device", b".to(")  # code without these uses neither CUDA nor a device that it gets

_FORKING = re.compile(rb"P(?:rocess(?:(?<=\bProcess)\b|PoolExecutor)|ool(?<=\bPool)\()|os\.fork\(")
_NOT_FORKING = re.compile(rb"(set_start_method|get_context|start_method)[^\n]{0,300}(spawn|forkserver)")
_POOLS = ("Pool", "ProcessPoolExecutor")
_STARTING = (*_POOLS, "Process", "fork")
_RUNNING = (
    "apply", "apply_async", "map", "map_async", "imap", "imap_unordered", "starmap", "starmap_async",
    "submit",
)  # fmt: skip


@of_bytes(b"multiprocessing", b"concurrent", b"os.fork")
def forked_modules(data: bytes) -> frozenset[str]:
    """Return the modules whose functions run in processes that a file forks, if these may use CUDA.

    https://docs.pytorch.org/docs/stable/generated/torch.cuda.is_available.html: it poisons fork.

    Args:
        data: the bytes of the file.

    Returns:
        Nothing if no process is forked, or none that may use CUDA. `UNKNOWN` is any module that the file
        imports: the functions that run are not known, or name devices themselves.
    """
    if _FORKING.search(data) is None or _NOT_FORKING.search(data) is not None:
        return frozenset()
    try:
        return frozenset(_Forks(ast.parse(data), data).modules())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset({UNKNOWN})


class _Forks:
    """The processes that one module forks."""

    def __init__(self, module: ast.Module, data: bytes) -> None:
        self._lines = data.splitlines()
        self._nodes = list(walk(module))
        self._functions = {node.name: node for node in self._nodes if isinstance(node, ast.FunctionDef)}
        self._imports = dict(self._imported())

    def modules(self) -> Iterator[str]:
        """Yield the modules whose functions forked processes run, `UNKNOWN` for any of them."""
        if not any(map(self._names_process, self._nodes)):
            return
        calls = [node for node in self._nodes if isinstance(node, ast.Call)]
        todo = [target for call in calls for target in self._targets(call)]
        bases = (base for node in self._nodes if isinstance(node, ast.ClassDef) for base in node.bases)
        if not todo or any(last_name(base) == "Process" for base in bases):
            yield UNKNOWN
        seen: set[str] = set()
        while todo:
            target = todo.pop()
            name = target.id if isinstance(target, ast.Name) else ""
            if name in self._imports:
                yield from self._imports[name]
            elif name not in self._functions:
                yield UNKNOWN
            elif name not in seen:
                seen.add(name)
                function = self._functions[name]
                if self._may_use_devices(function):
                    yield UNKNOWN
                names = (node for node in walk(function) if isinstance(node, ast.Name))
                todo += (node for node in names if node.id in self._functions or node.id in self._imports)

    def _names_process(self, node: ast.AST) -> bool:
        """Return whether a node uses what starts processes, or imports it by another name."""
        if isinstance(node, ast.ImportFrom):
            return any(alias.asname and alias.name in _STARTING for alias in node.names)
        return isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) in _STARTING

    def _may_use_devices(self, function: ast.FunctionDef) -> bool:
        """Return whether a function names devices, or calls what it is given."""
        given = {parameter.arg for parameter, _ in with_defaults(function.args)}
        roots = (_root(node.func) for node in walk(function) if isinstance(node, ast.Call))
        text = b"\n".join(self._lines[function.lineno - 1 : function.end_lineno])
        return not given.isdisjoint(roots) or any(word in text for word in DEVICES)

    def _targets(self, call: ast.Call) -> Iterator[ast.expr]:
        """Yield the functions that a call runs in processes, `partial(f, x)` as `f`."""
        name = last_name(call.func)
        if name == "fork":
            yield call
        if name in (*_POOLS, "Process"):
            given = [each.value for each in call.keywords if each.arg in ("target", "initializer")]
        elif isinstance(call.func, ast.Attribute) and name in _RUNNING:
            given = call.args[:1]
        else:
            return
        for target in given:
            is_partial = isinstance(target, ast.Call) and last_name(target.func) == "partial" and target.args
            yield target.args[0] if is_partial else target  # type: ignore[attr-defined]

    def _imported(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the names that imports bind, each with the modules that it may be, or be of."""
        for node in self._nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for alias in node.names:
                    one = copy(node)
                    one.names = [alias]
                    yield alias.asname or alias.name.partition(".")[0], modules_of(one)


def _root(function: ast.expr) -> str:
    """Return the first name of what is called: `x` for `x.y[0]()`."""
    while isinstance(function, (ast.Attribute, ast.Subscript, ast.Call)):
        function = function.func if isinstance(function, ast.Call) else function.value
    return last_name(function)
