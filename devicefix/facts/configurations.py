"""The devices that a program reads from its configuration files."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from devicefix.facts.module import Facts
from devicefix.facts.scopes import dotted
from devicefix.facts.sinks import device_values
from devicefix.facts.values import cpu

_LOADERS = {
    "yaml.safe_load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "json.load", "json.loads",
    "toml.load", "toml.loads", "tomllib.load", "tomllib.loads", "tomli.load", "tomli.loads",
    "omegaconf.OmegaConf.load",
}  # fmt: skip
_MAIN = "hydra.main"
_LOADING = re.compile(r"yaml|json\.load|toml|OmegaConf|hydra")
_LOADING_NAMES = {*_LOADERS, _MAIN}
_LIBRARIES = {name.partition(".")[0] for name in _LOADING_NAMES}
_CHANGING = re.compile("update|merge|setdefault|__setitem__")
_HOPS = 6  # bindings, calls and keys between a value and the file that it is read from
_CALLS = 20


def device_reads(facts: Facts) -> Iterator[tuple[ast.expr, str, bool]]:
    """Yield the expressions that read a device from a configuration.

    Yields:
        The expression, the key, and whether the user may give the value in another way than by the file.
    """
    if not _LOADING.search(facts.source.text) or not _loads(facts):
        return
    seen: set[ast.expr] = set()
    configurations = _Configurations(facts)
    for passed in device_values(facts):
        for value in _origins(facts, passed):
            key = _key(value)
            if key and value not in seen and not facts.is_guarded(passed):
                seen.add(value)
                way = configurations.way(value)
                if way is not None:
                    yield value, key, configurations.is_mixed(way)


def _loads(facts: Facts) -> bool:
    """Return whether a module imports what loads a configuration, and names it."""
    for statement in facts.tree.imports:
        module = f"{statement.module}." if isinstance(statement, ast.ImportFrom) else ""
        for alias in statement.names:
            name = f"{module}{alias.name}" if alias.name != "*" else module
            if not (module or alias.asname):
                name = name.partition(".")[0]  # `import yaml.loader` binds `yaml`
            if name.partition(".")[0] in _LIBRARIES and any(
                each.startswith(name) and _last(each) in facts.tree.text for each in _LOADING_NAMES
            ):
                return True
    return False


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _origins(facts: Facts, passed: ast.expr) -> list[ast.expr]:
    """Return a device and what its variable is bound to, or nothing if that may be the CPU."""
    bound = [binding.value for binding in facts.bindings(passed)]
    values = [value for value in bound if value is not None]
    if any(cpu(facts, value) for value in values):
        return []
    return [passed, *values]


def _key(value: ast.expr) -> str:
    """Return the key that an expression reads, empty if it reads none."""
    match value:
        case ast.Subscript(slice=ast.Constant(value=str(key))) | ast.Attribute(attr=key):
            return key
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), *_]):
            return key
    return ""


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of the way from an expression back to the configuration file that it is read from.

    Attributes:
        node: the expression that is reached.
        hops: how many steps may follow.
        previous: the step before.
        mixed: whether the value may also come from somewhere else, such as an option.
    """

    node: ast.expr
    hops: int
    previous: _Step | None = None
    mixed: bool = False


class _Configurations:
    """The ways from the expressions of one module back to configuration files."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._dead: dict[ast.expr, int] = {}  # the steps behind an expression that lead to no configuration
        self._known_arguments: dict[tuple[ast.AST, str], list[tuple[ast.expr, bool]]] = {}

    def way(self, value: ast.expr) -> list[_Step] | None:
        """Return the shortest way from an expression to a loaded configuration, None if there is none."""
        found = {value: _Step(value, _HOPS)}
        todo = deque(found.values())
        followed: dict[int, object] = {}  # the arguments of a parameter are one list wherever it is read
        while todo:
            step = todo.popleft()
            bound = [binding.value for binding in self.facts.bindings(step.node)]
            for each in (step.node, *bound):
                if each is None or step.hops == 0:
                    continue
                ends, origins = self._origins_of(each)
                mixed = len(bound) > 1
                if ends is not None:
                    return list(_back(_Step(each, 0, step, mixed or ends)))
                if id(origins) in followed:
                    continue
                followed[id(origins)] = origins
                for origin, other in origins:
                    if origin not in found and self._dead.get(origin, -1) < step.hops - 1:
                        found[origin] = _Step(origin, step.hops - 1, step, mixed or other)
                        todo.append(found[origin])
        for step in found.values():
            self._dead[step.node] = max(step.hops, self._dead.get(step.node, -1))
        return None

    def is_mixed(self, way: list[_Step]) -> bool:
        """Return whether options may replace what the file says on a way."""
        names = (step.node for step in way if isinstance(step.node, (ast.Name, ast.Attribute)))
        return any(step.mixed for step in way) or any(map(self._is_changed, names))

    def _origins_of(self, value: ast.expr) -> tuple[bool | None, list[tuple[ast.expr, bool]]]:
        """Return where an expression comes from.

        Returns:
            None unless it is a configuration that is loaded here, then whether options may replace it. Then
            the expressions that it may be a part of, or come from, each with whether others count as well.
        """
        match value:
            case ast.Subscript(value=whole) | ast.Attribute(value=whole):
                return None, [(whole, False)]
            case ast.Name(id=name):
                return self._passed(value, name)
            case ast.Call():
                return self._made(value)
        return None, []

    def _made(self, call: ast.Call) -> tuple[bool | None, list[tuple[ast.expr, bool]]]:
        """Return where the result of a call comes from: its arguments, its object, or the function."""
        name = self.facts.resolve(call.func)
        if name in _LOADERS:
            return False, []
        if name == "torch.device":  # no configuration, and not equal to a string
            return None, []
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        plain = (each.value if isinstance(each, ast.Starred) else each for each in arguments)
        origins = [(each, len(arguments) > 1) for each in plain]
        if isinstance(call.func, ast.Attribute) and call.func.attr == "get":
            origins.insert(0, (call.func.value, False))
        own = self.facts.guards.refusals.own_function(call.func)
        returns = (node for node in ast.walk(own) if isinstance(node, ast.Return)) if own is not None else ()
        origins += [(node.value, False) for node in returns if node.value is not None]
        return None, origins

    def _passed(self, name: ast.Name, parameter: str) -> tuple[bool | None, list[tuple[ast.expr, bool]]]:
        """Return what the module passes for the parameter that a name is, or that Hydra passes it."""
        found = self.facts.tree.scope(name).lookup(parameter)
        function = found[0].node if found is not None and any(each.parameter for each in found[1]) else None
        if not isinstance(function, ast.FunctionDef):
            return None, []
        if any(_is_main(self.facts, each) for each in function.decorator_list):
            return True, []  # its command line takes `device=cuda`
        key = function, parameter
        if key not in self._known_arguments:
            self._known_arguments[key] = [(each, False) for each in self._arguments(function, parameter)]
        return None, self._known_arguments[key]

    def _is_changed(self, configuration: ast.expr) -> bool:
        """Return whether the module changes a configuration, perhaps by the user's options."""
        parents = self.facts.tree.parents
        for use in self.facts.tree.reads(dotted(configuration) or ""):
            match parents.get(use):
                case ast.Attribute(attr=name) if _CHANGING.match(name):
                    return True
                case ast.Subscript(value=whole, ctx=ast.Store()) if whole is use:
                    return True
                case ast.Call(func=ast.Name(id="setattr" | "vars")):
                    return True
        return False

    def _arguments(self, function: ast.FunctionDef, parameter: str) -> Iterator[ast.expr]:
        """Yield what the module passes to a function for a parameter."""
        owner = self.facts.tree.parents.get(function)
        called = function.name
        names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        if isinstance(owner, ast.ClassDef):
            called, names = owner.name if called == "__init__" else called, names[1:]
        calls = [
            parent
            for use in self.facts.tree.reads(called)[:_CALLS]
            if isinstance(parent := self.facts.tree.parents.get(use), ast.Call) and parent.func is use
        ]
        place = names.index(parameter) if parameter in names else None
        for call in calls:
            if place is not None and place < len(call.args):
                yield call.args[place]
            yield from (keyword.value for keyword in call.keywords if keyword.arg == parameter)


def _back(step: _Step | None) -> Iterator[_Step]:
    """Yield a step, and those before it."""
    while step is not None:
        yield step
        step = step.previous


def _is_main(facts: Facts, decorator: ast.expr) -> bool:
    return facts.resolve(decorator.func if isinstance(decorator, ast.Call) else decorator) == _MAIN


def asked_elsewhere(facts: Facts, value: ast.expr) -> bool:
    """Return whether the program asks for CUDA in a test that reads the same value, or the variable of it."""
    parents = facts.tree.parents
    assigned = parents.get(value)
    names = {ast.dump(value)}
    if isinstance(assigned, ast.Assign):
        names |= {ast.dump(target).replace("Store()", "Load()") for target in assigned.targets}
    for node in facts.tree.nodes_with("is_available"):
        if not isinstance(node, ast.Call):
            continue
        test: ast.AST = node
        while isinstance(parents.get(test), (ast.BoolOp, ast.UnaryOp, ast.Compare)):
            test = parents[test]
        if any(ast.dump(part) in names for part in ast.walk(test)):
            return True
    return False
