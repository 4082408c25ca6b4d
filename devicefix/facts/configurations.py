"""The devices that a program reads from its configuration files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from os.path import join, normpath

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

# `"configs/base.yaml"`, and `config_path="configs", config_name="base"` of Hydra
_ENDS = (b".yaml", b".yml", b".json", b".toml")
_END = re.compile(rb"\.(?:ya?ml|json|toml)[\"']")
_BEFORE = re.compile(rb"[\"']([^\"'\n{}%*]+)\Z")
_LONGEST = 150  # characters of a path
_HYDRA = re.compile(rb"hydra\.main\(([^)]*)\)")
_OPTION = re.compile(rb"config_(path|name)\s*=\s*[\"']([\w./-]+)[\"']")


def named_configurations(data: bytes) -> frozenset[str]:
    """Return the paths of configuration files that a module names, without parsing it."""
    found = set()
    for end in _END.finditer(data) if any(each in data for each in _ENDS) else ():
        before = _BEFORE.search(data[max(0, end.start() - _LONGEST) : end.start()])
        if before is not None:
            found.add(before[1] + end[0][:-1])
    for arguments in _HYDRA.findall(data) if b"hydra.main" in data else ():
        given = dict(_OPTION.findall(arguments))
        if b"name" in given:
            found.add(join(given.get(b"path", b""), given[b"name"].removesuffix(b".yaml") + b".yaml"))
    return frozenset(normpath(name.decode(errors="replace")) for name in found)


def device_reads(facts: Facts) -> Iterator[tuple[ast.expr, str, bool]]:
    """Yield the expressions that read a device from a configuration.

    Yields:
        The expression, the key, and whether the user may give the value in another way than by the file.
    """
    if not _LOADING.search(facts.source.text) or not _loads(facts):
        return
    seen: set[ast.expr] = set()
    for passed in device_values(facts):
        for value in _origins(facts, passed):
            key = _key(value)
            if key and value not in seen and not facts.is_guarded(passed):
                seen.add(value)
                configuration = _Configuration(facts)
                if configuration.holds(value):
                    yield value, key, configuration.is_mixed


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


class _Configuration:
    """The source of an expression: a configuration file, maybe mixed with options of the user."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._is_mixed = False
        self._followed: dict[ast.Name | ast.Attribute, None] = {}

    @property
    def is_mixed(self) -> bool:
        """Return whether options may replace what the file says, asked of what `holds` followed."""
        return self._is_mixed or any(map(self._is_changed, self._followed))

    def holds(self, value: ast.expr, hops: int = _HOPS) -> bool:
        """Return whether an expression is a loaded configuration, or a part of one."""
        bound = [binding.value for binding in self.facts.bindings(value)]
        found = hops > 0 and any(each and self._is_loaded(each, hops - 1) for each in (value, *bound))
        self._is_mixed |= found and len(bound) > 1
        return found

    def _is_loaded(self, value: ast.expr, hops: int) -> bool:
        if isinstance(value, (ast.Name, ast.Attribute)):
            self._followed[value] = None
        match value:
            case ast.Subscript(value=whole) | ast.Attribute(value=whole):
                return self.holds(whole, hops)
            case ast.Name(id=name):
                return self._is_passed(value, name, hops)
            case ast.Call(func=ast.Attribute(attr="get", value=whole)) if self.holds(whole, hops):
                return True
            case ast.Call():
                return self._returns(value, hops)
        return False

    def _returns(self, call: ast.Call, hops: int) -> bool:
        """Return whether a call loads a configuration, or makes an object of a loaded one."""
        name = self.facts.resolve(call.func)
        if name in _LOADERS:
            return True
        if name == "torch.device":  # no configuration, and not equal to a string
            return False
        arguments = (*call.args, *(keyword.value for keyword in call.keywords))
        if any(self.holds(each.value if isinstance(each, ast.Starred) else each, hops) for each in arguments):
            self._is_mixed |= len(arguments) > 1
            return True
        found = self.facts.tree.scope(call).lookup(call.func.id) if isinstance(call.func, ast.Name) else None
        functions = [binding.node for binding in found[1]] if found is not None else []
        return any(
            isinstance(node, ast.Return) and node.value is not None and self.holds(node.value, hops)
            for function in functions
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
        )

    def _is_passed(self, name: ast.Name, parameter: str, hops: int) -> bool:
        """Return whether a name is a parameter that the module passes a configuration for, or Hydra does."""
        found = self.facts.tree.scope(name).lookup(parameter)
        function = found[0].node if found is not None and any(each.parameter for each in found[1]) else None
        if not isinstance(function, ast.FunctionDef):
            return False
        if any(_is_main(self.facts, each) for each in function.decorator_list):
            self._is_mixed = True  # its command line takes `device=cuda`
            return True
        return any(self.holds(each, hops) for each in self._arguments(function, parameter))

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
