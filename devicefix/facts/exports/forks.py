"""Find what runs in the processes that a module forks: CUDA does not survive a fork once it was asked for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import copy

from devicefix.facts.exports.export import of_facts
from devicefix.facts.exports.imports import modules_of
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.module import Facts
from devicefix.facts.scopes import with_defaults
from devicefix.facts.tree import walk
from devicefix.facts.values import last_name

UNKNOWN = ""  # any module that the file imports, or the file itself
GIVEN = "*"  # any module of a file that imports the file: it passes on the functions that run
DEVICES = (b"cuda", b"device", b".to(")  # code without these uses neither CUDA nor a device that it gets

_POOLS = ("Pool", "ProcessPoolExecutor")
_STARTING = (*_POOLS, "Process", "fork", "start_processes")
_LIBRARIES = {"multiprocessing", "torch", "concurrent", "os", "multiprocess", "billiard"}
_RUNNING = (
    "apply", "apply_async", "map", "map_async", "imap", "imap_unordered", "starmap", "starmap_async",
    "submit",
)  # fmt: skip
# How processes are started: https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods
_METHODS = ("set_start_method", "get_context", *_STARTING)
_NOT_FORKING = {"spawn", "forkserver"}
_WRAPPERS = ("torch.utils.data.Subset", "torch.utils.data.ConcatDataset", "torch.utils.data.ChainDataset")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
_IN_WORKER = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__")


@of_facts(b"multiprocessing", b"concurrent", b"fork(", pattern=rb"Process|Pool|fork\(|start_", anywhere=True)
def forked_modules(facts: Facts) -> frozenset[str]:
    """Return the modules whose functions run in processes that a file forks, if these may use CUDA.

    https://docs.pytorch.org/docs/stable/generated/torch.cuda.is_available.html: it poisons fork.

    Args:
        facts: the facts of the file.

    Returns:
        Nothing if no process is forked, or none that may use CUDA. `UNKNOWN` is any module that the file
        imports: the functions that run are not known, or name devices themselves. `GIVEN` is any module that
        passes them a function.
    """
    return frozenset(_Forks(facts).modules())


@of_facts(b"num_workers", pattern=rb"DataLoader", anywhere=True)
def loaded(facts: Facts) -> frozenset[str]:
    """Return the functions and classes that the workers of a file's data loaders run, and that may use CUDA.

    They are full names of other files; `UNKNOWN` if they are in this file and use CUDA.
    """
    own = device_workers(facts)
    found: set[str] = set()
    classes = (node for node in facts.tree.nodes_with("DataLoader") if isinstance(node, ast.ClassDef))
    names = {"DataLoader", *(each.name for each in classes if "DataLoader" in map(last_name, each.bases))}
    for call in facts.tree.nodes_with(*names):
        if not isinstance(call, ast.Call):
            continue
        made = call.args[:1] if last_name(call.func) == "partial" else [call.func]
        if not names.isdisjoint(map(last_name, made)) and _has_workers(call):
            for value in _run_by_workers(facts, call):
                name = facts.resolve(value)
                if name is not None:
                    found.add(name)
                elif last_name(value) in own:
                    found.add(UNKNOWN)
    return frozenset(found)


@of_facts(b"cuda", anywhere=True)
def device_workers(facts: Facts) -> frozenset[str]:
    """Return the functions and classes that may use CUDA where workers run them, also by what they name."""
    bound = (found for scope in facts.tree.scopes.values() for found in scope.bindings.values())
    definitions = {each.node for found in bound for each in found if isinstance(each.node, _DEFINITIONS)}
    using, naming, names = set[ast.AST](), dict[ast.AST, list[ast.AST]](), set[str]()
    for definition in definitions:
        parts = _run_by_worker(definition)
        codes = [*map(facts.source.code, parts)]
        if any("cuda" in code for code in codes):
            using.add(definition)
        elif any("device" in code for code in codes):
            names.add(getattr(definition, "name", ""))
        for name in (node for part in parts for node in walk(part) if isinstance(node, ast.Name)):
            scope = facts.tree.scope(name).lookup(name.id)
            for binding in scope[1] if scope is not None else ():
                naming.setdefault(binding.node, []).append(definition)
    todo = list(using)
    while todo:
        new = [each for each in naming.get(todo.pop(), ()) if each not in using]
        using.update(new)
        todo += new
    return frozenset(names.union(getattr(each, "name", "") for each in using) - {""})


def _run_by_worker(definition: ast.stmt) -> list[ast.stmt]:
    """Return what of a definition runs where a worker uses it: without the constructor of a dataset."""
    if not isinstance(definition, ast.ClassDef):
        return [definition]
    names = {each.name for each in definition.body if isinstance(each, ast.FunctionDef)}
    is_dataset = not names.isdisjoint(_IN_WORKER)
    return [each for each in definition.body if not (is_dataset and getattr(each, "name", "") == "__init__")]


def _has_workers(loader: ast.Call) -> bool:
    """Return whether a data loader may fork workers: https://docs.pytorch.org/docs/stable/data.html.

    A subclass, and `**options`, may give it some.
    """
    given = {keyword.arg: keyword.value for keyword in loader.keywords}
    workers = argument_of(loader, "num_workers", 5)
    context = given.get("multiprocessing_context")
    if isinstance(context, ast.Constant) and context.value in _NOT_FORKING:
        return False
    if workers is None:
        return None in given or last_name(loader.func) != "DataLoader"
    return not (isinstance(workers, ast.Constant) and not workers.value)


def _run_by_workers(facts: Facts, loader: ast.Call) -> Iterator[ast.expr]:
    """Yield the functions, and the classes of the objects, that the workers of a data loader call."""
    dataset = loader.args[:1]
    given = ("dataset", "collate_fn", "worker_init_fn")
    for value in (*dataset, *(keyword.value for keyword in loader.keywords if keyword.arg in given)):
        made = facts.value(value) or value
        if isinstance(made, ast.Lambda):
            yield from (each for each in walk(made.body) if isinstance(each, ast.Name))
        else:
            yield made.func if isinstance(made, ast.Call) else made
        if facts.call(made, *_WRAPPERS):
            parts = (facts.value(each) or each for each in made.args)  # type: ignore[attr-defined]
            yield from (each.func for each in parts if isinstance(each, ast.Call))


class _Forks:
    """The processes that one module forks."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._nodes = list(walk(facts.tree.module))
        self._functions = {node.name: node for node in self._nodes if isinstance(node, ast.FunctionDef)}
        self._imports = dict(self._imported())

    def modules(self) -> Iterator[str]:
        """Yield the modules whose functions forked processes run, `UNKNOWN` for any of them."""
        calls = [node for node in self._nodes if isinstance(node, ast.Call)]
        if not any(map(self._starts_processes, self._nodes)) or any(map(self._spawns, calls)):
            return
        todo = [target for call in calls for target in self._targets(call)]
        bases = (base for node in self._nodes if isinstance(node, ast.ClassDef) for base in node.bases)
        if not todo or any(self._name(base) == "Process" for base in bases):
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
                given = self._called_parameters(function)
                if self._names_devices(function) or any(not isinstance(each, ast.Name) for each in given):
                    yield UNKNOWN
                if any(isinstance(each, ast.Name) for each in given):
                    yield GIVEN
                names = (node for node in walk(function) if isinstance(node, ast.Name))
                todo += (node for node in names if node.id in self._functions or node.id in self._imports)

    def _name(self, function: ast.expr) -> str:
        """Return the last name of what starts processes, empty for what another library has."""
        full = self._facts.resolve(function)
        if full is not None and full.partition(".")[0] not in _LIBRARIES:
            return ""
        return (full or last_name(function)).rpartition(".")[2]

    def _starts_processes(self, node: ast.AST) -> bool:
        """Return whether a node is a function or class that forks processes, or may."""
        if not isinstance(node, (ast.Name, ast.Attribute)) or self._name(node) not in _STARTING:
            return False
        call = self._facts.tree.parents.get(node)
        return self._name(node) != "start_processes" or (
            isinstance(call, ast.Call) and _starts_by(call, {"fork"})
        )

    def _spawns(self, call: ast.Call) -> bool:
        """Return whether a call makes the module start processes in another way."""
        return self._name(call.func) in _METHODS and _starts_by(call, _NOT_FORKING)

    def _names_devices(self, function: ast.FunctionDef) -> bool:
        """Return whether a function names devices, itself or by the values of variables that it reads."""
        names = (node for node in walk(function) if isinstance(node, ast.Name))
        values = (binding.value for name in names for binding in self._facts.bindings(name))
        texts = (self._facts.source.code(each) for each in (function, *values) if each is not None)
        return any(word.decode() in text for text in texts for word in DEVICES)

    def _called_parameters(self, function: ast.FunctionDef) -> list[ast.expr]:
        """Return the parameters that a function calls, and the methods of them."""
        given = {parameter.arg for parameter, _ in with_defaults(function.args)}
        called = (node.func for node in walk(function) if isinstance(node, ast.Call))
        return [each for each in called if _root(each) in given]

    def _targets(self, call: ast.Call) -> Iterator[ast.expr]:
        """Yield the functions that a call runs in processes, `partial(f, x)` as `f`."""
        name = self._name(call.func)
        if name == "fork":
            yield call
        if name == "start_processes":
            yield from [*call.args, *(each.value for each in call.keywords if each.arg == "fn")][:1]
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


def _starts_by(call: ast.Call, methods: set[str]) -> bool:
    """Return whether a call names one of some ways to start processes."""
    values = (*call.args, *(keyword.value for keyword in call.keywords))
    return any(isinstance(value, ast.Constant) and value.value in methods for value in values)


def _root(function: ast.expr) -> str:
    """Return the first name of what is called: `x` for `x.y[0]()`."""
    while isinstance(function, (ast.Attribute, ast.Subscript, ast.Call)):
        function = function.func if isinstance(function, ast.Call) else function.value
    return last_name(function)
