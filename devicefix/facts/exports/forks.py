"""Find what runs in the processes that a module forks: CUDA does not survive a fork once it was asked for."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

from devicefix.facts.exports.export import of_facts
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.module import Facts
from devicefix.facts.scopes import DEFINITIONS, Binding, Scope, dotted, with_defaults
from devicefix.facts.tree import children, walk
from devicefix.facts.values import last_name

_STARTING = ("Pool", "ProcessPoolExecutor", "Process", "fork")
_LIBRARIES = {"multiprocessing", "torch", "concurrent", "os", "multiprocess", "billiard"}
_RUNNING = re.compile(r"(?:apply|i?map|starmap)(?:_async|_unordered)?|submit")
# How processes are started: https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods
_METHODS = ("set_start_method", "get_context", "start_processes", *_STARTING)
_NAMED = re.compile(rf"\b(?:{'|'.join(_METHODS)})\b")
_NOT_FORKING = {"spawn", "forkserver"}
_IN_WORKER = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__", "run")
_OF_LOADER = {"dataset": 0, "collate_fn": 6, "worker_init_fn": 10}  # what its workers use
_OF_MAIN = {"sampler", "batch_sampler"}  # what a loader uses itself
_HARMLESS = {"is_available", "manual_seed", "manual_seed_all"}  # they start nothing
_CUDA = re.compile(r"(?i)cuda|device|\bto[\s\\]*\(")  # what code that uses CUDA names
_WORDS = rf"\b(?:{'|'.join(_STARTING)}|start_processes|DataLoader)\b".encode()
_Code = tuple[ast.AST, bool]  # with whether processes run it, or use this value; else it makes what they get


class Named(NamedTuple):
    """Code that processes run, or a value that they get, as a file names it.

    Attributes:
        name: the full name of a function, a class or a value.
        is_run: whether processes run it, or use this value; else it makes what they get.
        makes: whether it is what the function of that name returns.
        parameter: the parameter of the function for which its calls pass it, empty if they do not.
        position: the position of the parameter, -1 if it has none.
    """

    name: str
    is_run: bool = True
    makes: bool = False
    parameter: str = ""
    position: int = -1


UNKNOWN = Named("")  # code that uses CUDA, or a device that it gets


@of_facts(b"multiprocessing", b"concurrent", b"fork(", b"DataLoader", pattern=_WORDS, anywhere=True)
def forked(facts: Facts) -> frozenset[Named]:
    """Return what the processes run that a file forks.

    https://docs.pytorch.org/docs/stable/generated/torch.cuda.is_available.html: it poisons fork.
    """
    return frozenset(facts.once(Forks, facts.tree.root).found())


class Forks:
    """The processes that one module forks, and what they run."""

    def __init__(self, facts: Facts, _module: Scope) -> None:
        self._facts = facts
        self._tree = facts.tree
        self._may_use_cuda = _CUDA.search(facts.source.text) is not None
        self._used: Callable[..., list[Named | _Code]] = cache(lambda *code: list(self._uses(*code)))
        self._returned: Callable[[ast.AST], list[ast.expr]] = cache(lambda node: list(_returned(node)))

    def found(self) -> Iterator[Named]:
        """Yield what the processes run."""
        imported = (each for statement in self._tree.imports for each in statement.names)
        aliases = (each.asname or "" for each in imported if _NAMED.search(each.name))
        named = chain.from_iterable(map(self._tree.nodes_with_name, (*_METHODS, *aliases)))
        started = {self._name(node) for node in named if isinstance(node, (ast.Name, ast.Attribute))}
        nodes = self._tree.nodes if not started.isdisjoint(_METHODS) else ()
        calls = {call: self._names(call.func) for call in nodes if isinstance(call, ast.Call)}
        methods = {self._method(call) for call, names in calls.items() if not names.isdisjoint(_METHODS)}
        default = "fork" if "fork" in methods or methods.isdisjoint(_NOT_FORKING) else "spawn"
        classes = list(self._tree.of_kind(ast.ClassDef)) if default == "fork" else []
        run: list[_Code] = [(each, True) for each in classes if "Process" in map(self._name, each.bases)]
        heirs = (each.name for each in classes if "DataLoader" in map(last_name, each.bases))
        loaders = {"DataLoader", *heirs}
        for call in calls or dict.fromkeys(chain.from_iterable(map(self._tree.calls_with_name, loaders))):
            names, parts = calls.get(call, set()), list[_Code]()
            if not started.isdisjoint((*_STARTING, "start_processes")):
                parts += ((part, True) for part in self._given(call, names))
            made = call.args[0] if last_name(call.func) == "partial" and call.args else call.func
            if last_name(made) in loaders and _has_workers(call):
                given = (argument_of(call, name, position) for name, position in _OF_LOADER.items())
                options = (each.value for each in call.keywords if each.arg is None)
                parts += ((part, False) for part in (*given, *options) if part is not None)
            way = "spawn" if "start_processes" in names else default
            run += parts if parts and (self._method(call) or way) not in _NOT_FORKING else ()
        if not started.isdisjoint(_STARTING) and default == "fork" and not any(is_run for _, is_run in run):
            run.append((self._tree.module, True))  # what they run is not known
        yield from self.reached(run)

    def reached(self, start: Iterable[_Code]) -> Iterator[Named]:
        """Yield what other files have of what some code leads to."""
        todo, seen = list(start), set[_Code]()
        while todo:
            code = todo.pop()
            if code not in seen:
                seen.add(code)
                for found in self._used(*code):
                    if isinstance(found, Named):
                        yield found
                    else:
                        todo.append(found)

    def _uses(self, code: ast.AST, is_run: bool) -> Iterator[Named | _Code]:
        """Yield what some code uses."""
        is_value = _is_value(code)
        for node in (node for part in _parts(code) for node in _without_annotations(part)):
            may_use = self._may_use_cuda and (is_run or not is_value)
            if may_use and self._uses_cuda(node, is_value=is_value):
                yield UNKNOWN
            if is_value and isinstance(node, ast.Lambda):
                yield node, True
            elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                yield from self._meant(node, code, is_run or not is_value)

    def _meant(self, node: ast.expr, code: ast.AST, is_run: bool) -> Iterator[Named | _Code]:
        """Yield what a name or an attribute in some code means."""
        is_value, is_inner = _is_value(code), isinstance(self._tree.parents.get(node), ast.Attribute)
        makes = is_value and self._tree.call_of(node) is not None
        name = self._facts.resolve(node)
        if name is not None:
            yield from () if is_inner else [Named(name, is_run, makes)]
        elif not is_inner or (is_value and is_run):
            for binding in self._bindings(node, None if is_value else code):
                yield from self._of_binding(binding, is_run=is_run, makes=makes)
            yield from passed(self._facts, node, is_run=is_run) if is_value else ()

    def named(self, named: Named) -> Iterator[_Code]:
        """Yield what another file means by a name of this module."""
        if named.parameter:
            for value in self._passed(named):
                is_device = isinstance(value, ast.Constant) or self._facts.call(value, "torch.device")
                yield value, named.is_run and is_device
            return
        for binding in self._tree.root.bindings.get(named.name, ()):
            yield from self._of_binding(binding, is_run=named.is_run, makes=named.makes)

    def _passed(self, named: Named) -> Iterator[ast.expr]:
        """Yield what the calls of a function, or of a class, pass for a parameter, and its default."""
        for call in self._tree.calls_with_name(named.name):
            value = argument_of(call, named.parameter, named.position)
            if last_name(call.func) == named.name and value is not None:
                yield value
        for own in (binding.node for binding in self._tree.root.bindings.get(named.name, ())):
            for part in (own, *getattr(own, "body", ())):  # a class has `__init__`
                defaults = with_defaults(part.args) if isinstance(part, ast.FunctionDef) else ()
                yield from (value for each, value in defaults if each.arg == named.parameter and value)

    def _bindings(self, node: ast.expr, inside: ast.AST | None = None) -> Sequence[Binding]:
        """Return the bindings of a name outside some code, or of an attribute or method of `self`."""
        if isinstance(node, ast.Name):
            found = self._tree.scope(node).lookup(node.id)
            scope = found[0] if found is not None else None
            while scope is not None and scope.node is not inside:
                scope = scope.parent
            return () if found is None or scope is not None else found[1]
        name = dotted(node) or ""
        if inside is not None and not name.startswith("self."):
            return ()
        classes = (scope for scope in self._tree.scopes.values() if scope.is_class)
        members = (each for scope in classes for each in scope.bindings.get(last_name(node), ()))
        return [*self._tree.attributes.get(name, ()), *members]

    def _of_binding(self, binding: Binding, *, is_run: bool, makes: bool) -> Iterator[_Code]:
        """Yield the definition or the value that a name is bound to, or what its function returns."""
        node = binding.node
        if isinstance(node, ast.ClassDef):
            has_bases = any(last_name(each) != "object" for each in node.bases)
            if has_bases or not makes or any(getattr(each, "name", "") in _IN_WORKER for each in node.body):
                yield node, True
        elif isinstance(node, DEFINITIONS) and not makes:
            yield node, True
        elif isinstance(node, DEFINITIONS) and not binding.parameter:
            yield from ((value, is_run) for value in self._returned(node))
        elif not binding.parameter:
            yield from ((value, is_run) for value in chain(_values(binding), _values(node)))

    def _uses_cuda(self, node: ast.AST, *, is_value: bool) -> bool:
        """Return whether code names CUDA, or a device that it gets."""
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str() as name):
                parent = self._tree.parents.get(node)
                names = {name, getattr(parent, "attr", "")}
                is_harmless = isinstance(parent, ast.Expr) or not _HARMLESS.isdisjoint(names)
                is_device = is_value and not isinstance(node, ast.Constant) and "device" in name
                is_device = is_device and not self._facts.bindings(node) and self._facts.resolve(node) is None
                name += self._facts.resolve(node) or ""  # of an alias
                return ("cuda" in name.lower() and not is_harmless) or is_device
            case ast.Call(func=ast.Attribute(attr="to"), args=[ast.Name() | ast.Attribute() as target, *_]):
                is_known = self._facts.bindings(target) or self._facts.resolve(target) is not None
                words = ("dtype", "device") if isinstance(target, ast.Name) else ("dtype",)
                return not is_known and not any(word in last_name(target) for word in words)
            case ast.Call(func=function, args=[ast.Constant(value=int())]):
                return self._facts.resolve(function) == "torch.device"
        return False

    def _names(self, function: ast.expr) -> set[str]:
        """Return the last names of what an expression, a variable among them, may be."""
        values = (binding.value for binding in self._facts.bindings(function))
        return {self._name(each) for each in (function, *values) if each is not None}

    def _name(self, function: ast.expr) -> str:
        """Return the last name of what starts processes, empty for what another library has."""
        full = self._facts.resolve(function)
        # Another library has it; `fork` of what is not imported is a method of the program.
        is_other = last_name(function) == "fork" if full is None else full.partition(".")[0] not in _LIBRARIES
        return "" if is_other else (full or last_name(function)).rpartition(".")[2]

    def _method(self, call: ast.Call) -> str | None:
        """Return the way to start processes that a call names, or the context that it uses."""
        named = (node for node in walk(call) if isinstance(node, (ast.Name, ast.Attribute)))
        for part in (call, *filter(None, map(self._facts.value, named))):
            for node in walk(part):
                if isinstance(node, ast.Constant) and node.value in {"fork", *_NOT_FORKING}:
                    return str(node.value)
        return None

    def _given(self, call: ast.Call, names: set[str]) -> Iterator[ast.AST]:
        """Yield what a call runs in processes, with its arguments."""
        if "fork" in names:
            function = self._tree.scope(call).function
            owner = function.node if function is not None else self._tree.module
            yield from (owner, *(each for each in walk(owner) if isinstance(each, ast.Name)))
        elif names & {"Pool", "ProcessPoolExecutor"}:
            yield from filter(None, [argument_of(call, "initializer", 1 if "Pool" in names else 2)])
        elif names & {"Process", "start_processes"} or (
            isinstance(call.func, ast.Attribute) and any(map(_RUNNING.fullmatch, names))
        ):
            yield from (*call.args, *(each.value for each in call.keywords))


def passed(facts: Facts, node: ast.expr, *, is_run: bool = False) -> Iterator[Named]:
    """Yield the parameter that a name or `self.x` is, as what calls of its function pass."""
    values = [node, *(each.value for each in facts.bindings(node) if each.value is not None)]  # of `self.x`
    for function, (name, position) in Sources(facts, How(0), 0).parameters(values):
        if name not in ("self", "cls"):
            yield Named(function, is_run, parameter=name, position=position)


def _is_value(code: ast.AST) -> bool:
    """Return whether code is a value, and no definition."""
    return not isinstance(code, (*DEFINITIONS, ast.Lambda, ast.Module))


def _without_annotations(part: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those inside it, but for annotations, samplers, and what `isinstance` asks for."""
    todo = [part]
    for each in todo:  # which grows
        yield each
        below = children(each)
        if isinstance(each, (ast.AnnAssign, ast.arg, ast.Call, *DEFINITIONS)):
            skipped = [getattr(each, "annotation", None), getattr(each, "returns", None)]
            skipped += [part for part in getattr(each, "keywords", ()) if part.arg in _OF_MAIN]
            if isinstance(each, ast.Call) and last_name(each.func) == "isinstance":
                skipped += each.args[1:]
            below = [child for child in below if child not in skipped]
        todo += below


def _parts(code: ast.AST) -> list[ast.AST]:
    """Return what of some code processes use."""
    if isinstance(code, ast.ClassDef):
        is_loader = "DataLoader" in map(last_name, code.bases)  # only what it is made of goes to its workers
        used = ("__init__",) if is_loader else _IN_WORKER
        methods = [each for each in code.body if getattr(each, "name", "") in used]
        return [*(methods or code.body), *code.bases]
    return [code]


def _values(node: ast.AST | Binding) -> Iterator[ast.expr]:
    """Yield what a statement or a binding takes its values from."""
    values = (getattr(node, name, None) for name in ("value", "iter", "context_expr"))
    return (value for value in values if isinstance(value, ast.expr))


def _returned(function: ast.AST) -> Iterator[ast.expr]:
    """Yield what a function returns or yields."""
    for each in walk(function):
        if isinstance(each, (ast.Return, ast.Yield)):
            yield from _values(each)


def _has_workers(loader: ast.Call) -> bool:
    """Return whether a data loader may fork workers: https://docs.pytorch.org/docs/stable/data.html.

    A subclass, and `**options`, may give it some.
    """
    workers = argument_of(loader, "num_workers", 5)
    if workers is None:
        return any(each.arg is None for each in loader.keywords) or last_name(loader.func) != "DataLoader"
    return not (isinstance(workers, ast.Constant) and not workers.value)
