"""Where a value goes: to something that takes a device, only to comparisons and prints, or out of sight.

A value is followed forward from the expression that makes it: through the variables, attributes, keys,
containers, choices, parameters and returned values of the module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from enum import Flag, auto
from functools import cached_property
from itertools import islice

from devicefix.facts.module import Facts
from devicefix.facts.names import option_names
from devicefix.facts.scopes import Scope, captures
from devicefix.facts.sinks import Place, takes_device
from devicefix.facts.values import last_name

# The containers around a value, the outer one first: each by the value's key or position, empty if any.
Layers = tuple[str, ...]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_STEPS = 400  # how many expressions to follow a value through, so that the time is linear
_DEPTH = 3  # how many containers around it
_SAME = {
    "list", "tuple", "set", "iter", "reversed", "sorted", "cycle", "str", "copy", "deepcopy", "deque",
    "cast", "field", "Field", "ib", "attrib", "Option", "Argument",
}  # fmt: skip
_DEFAULTS = {"get", "pop", "setdefault", "getenv", "next"}
_OBJECTS = {"dict", "Namespace", "SimpleNamespace", "EasyDict", "edict", "AttrDict", "DictConfig"}
_SHOWS = {
    "print", "debug", "info", "warning", "error", "critical", "exception", "log", "write", "echo", "len",
    "bool", "repr", "type", "isinstance", "hasattr", "startswith", "endswith",
}  # fmt: skip
_NEEDS_CUDA = re.compile(r"\.cuda\s*\(|\btorch\.cuda\.(?!is_available|device_count)")


class Use(Flag):
    """What becomes of a value."""

    NOTHING = 0
    DEVICE = auto()  # it is taken for a device somewhere
    SHOWN = auto()  # it is compared or printed
    UNKNOWN = auto()  # it leaves the module, or is used in a way that is not known


class Destinations:
    """Where the values of a module go.

    Args:
        facts: the facts of the module.
        is_device_place: whether any file of the project passes on a name, attribute or key as a device.
        receives_device: whether a function of the project, by its name, does so with a parameter, by its
            keyword or position.
    """

    def __init__(
        self,
        facts: Facts,
        is_device_place: Callable[[str], bool],
        receives_device: Callable[[str, Place], bool],
    ) -> None:
        self.facts = facts
        self.is_device_place = is_device_place
        self.receives_device = receives_device
        self.known: dict[tuple[object, Layers], Use] = {}  # by place, and by what is around the value there

    def of(self, node: ast.expr) -> Use:
        """Return what becomes of the value of an expression."""
        return _Trail(self).follow(node, ())

    def attribute_reads(self, name: str) -> Iterator[ast.expr]:
        """Yield the places that read an attribute of any object."""
        for node in self.facts.tree.nodes_with(f".{name}"):
            if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load):
                yield node

    def key_reads(self, key: str) -> Iterator[ast.expr]:
        """Yield the places that read a key of any dictionary."""
        for node in self.facts.tree.nodes_with(f'"{key}"', f"'{key}'"):
            match node:
                case ast.Subscript(slice=ast.Constant(value=str(text)), ctx=ast.Load()) if text == key:
                    yield node
                case ast.Call(func=ast.Attribute(attr="get" | "pop"), args=[first, *_]) if (
                    _text(first) == key
                ):
                    yield node

    def calls(self, name: str) -> Iterator[ast.expr]:
        """Yield the calls of a function or method by its name."""
        for node in self.facts.tree.nodes_with(name):
            if isinstance(node, ast.Call) and last_name(node.func) == name:
                yield node

    @cached_property
    def methods(self) -> dict[str, list[Function]]:
        """The methods of the module's classes, by name."""
        found: dict[str, list[Function]] = {}
        for node in self.facts.tree.scopes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if isinstance(self.facts.tree.parents.get(node), ast.ClassDef):
                    found.setdefault(node.name, []).append(node)
        return found


class _Trail:
    """The places that one value reaches.

    Args:
        destinations: those of the module.
        nested: whether it is a part of another trail.
    """

    def __init__(self, destinations: Destinations, *, nested: bool = False) -> None:
        self.destinations = destinations
        self.facts = destinations.facts
        self.tree = destinations.facts.tree
        self.use = Use.NOTHING
        self._nested = nested
        self._seen: set[tuple[object, Layers]] = set()
        self._todo: list[tuple[ast.expr, Layers]] = []

    def follow(self, node: ast.expr, layers: Layers) -> Use:
        """Follow the value of an expression."""
        self._reach(node, layers)
        return self._finish()

    def follow_all(self, nodes: Iterable[ast.expr], layers: Layers) -> Use:
        """Follow the value of any of some expressions."""
        for node in islice(nodes, _STEPS):
            self._reach(node, layers)
        return self._finish()

    def _finish(self) -> Use:
        while self._todo and Use.DEVICE not in self.use:
            if len(self._seen) > 2 * _STEPS:
                self.use |= Use.UNKNOWN
                break
            self._step(*self._todo.pop())
        return self.use

    def _reach(self, node: ast.expr, layers: Layers) -> None:
        """Follow the value on from an expression that has it, or a container of it."""
        if len(layers) > _DEPTH:
            self.use |= Use.UNKNOWN
        elif (node, layers) not in self._seen:
            self._seen.add((node, layers))
            self._todo.append((node, layers))

    def _reach_place(self, place: object, reads: Iterable[ast.expr], layers: Layers) -> None:
        """Follow the value on from a place that many values may be stored in, such as an attribute."""
        known = self.destinations.known
        if (place, layers) not in known and not self._nested:
            known[place, layers] = _Trail(self.destinations, nested=True).follow_all(reads, layers)
        if (place, layers) in known:
            self.use |= known[place, layers]
        elif (place, layers) not in self._seen:
            self._seen.add((place, layers))
            for node in islice(reads, _STEPS):
                self._reach(node, layers)

    def _step(self, node: ast.expr, layers: Layers) -> None:  # noqa: C901, PLR0912 (one case a kind of node)
        parent = self.tree.parents.get(node)
        match parent:
            case ast.Assign(targets=targets):
                for target in targets:
                    self._store(target, layers)
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                self._store(target, layers)
            case ast.NamedExpr(target=target):
                self._store(target, layers)
                self._reach(parent, layers)
            case ast.IfExp(test=test) if node is not test:
                self._reach(parent, layers)
            case ast.BoolOp() | ast.BinOp() | ast.FormattedValue() | ast.JoinedStr() | ast.Await():
                self._reach(parent, layers)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                self._reach(parent, (str(elements.index(node)), *layers))
            case ast.Set() | ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self._reach(parent, ("", *layers))
            case ast.Dict(keys=keys, values=values) if node in values:
                key = keys[values.index(node)]
                self._reach(parent, (_text(key), *layers))
            case ast.Starred():
                self._starred(parent, layers)
            case ast.For(iter=iterated) | ast.AsyncFor(iter=iterated) | ast.comprehension(iter=iterated) if (
                node is iterated
            ):
                self._store(parent.target, layers[1:])
            case ast.Subscript(value=value):
                self._subscript(parent, layers, value is node)
            case ast.Attribute(attr=name):
                self._attribute_of(parent, name, layers)
            case ast.keyword(arg=name):
                call = self.tree.parents[parent]
                if isinstance(call, ast.Call):
                    self._keyword(call, name, layers)
                else:
                    self.use |= Use.UNKNOWN
            case ast.Call(args=arguments) if node in arguments:
                self._argument(parent, parent.func, _position(parent, node), layers)
            case _:
                self._outside(node, parent, layers)

    def _outside(self, node: ast.expr, parent: ast.AST | None, layers: Layers) -> None:
        """Follow a value on from the whole of an expression."""
        match parent:
            case ast.Return():
                self._returned(self.tree.scope(parent).node, layers)
            case ast.Yield():
                self._returned(self.tree.scope(parent).node, ("", *layers))
            case ast.Lambda():
                self._result_of(parent, layers)
            case ast.arguments():
                self._default(parent, node, layers)
            case ast.Compare() if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
                self.use |= Use.SHOWN  # what another value is compared with
            case ast.Compare() | ast.If() | ast.While() | ast.IfExp() | ast.UnaryOp() | ast.Assert():
                self._compared(node)
            case ast.Match():
                self.use |= Use.UNKNOWN if captures(parent) else Use.SHOWN
            case ast.Expr():
                self.use |= Use.SHOWN
            case _:
                self.use |= Use.UNKNOWN

    # -- stores ---------------------------------------------------------------------------------------

    def _store(self, target: ast.expr, layers: Layers) -> None:
        match target:
            case ast.Name(id=name):
                found = self.tree.scope(target).lookup(name)
                if found is not None:
                    self._name(found[0], name, layers)
            case ast.Attribute(attr=name):
                self._attribute(name, layers)
            case ast.Subscript(slice=ast.Constant(value=str(key))):
                self._key(key, layers)
            case ast.Subscript(value=container):
                self._store(container, ("", *layers))
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                place = layers[0] if layers else ""
                starred = any(isinstance(element, ast.Starred) for element in elements)
                chosen = elements[int(place) :][:1] if place.isdigit() and not starred else elements
                for element in chosen:
                    self._store(element, layers[1:])
            case ast.Starred(value=inner):
                self._store(inner, ("", *layers))
            case _:
                self.use |= Use.UNKNOWN

    def _name(self, scope: Scope, name: str, layers: Layers) -> None:
        """Follow a value that a name of a scope is bound to."""
        if scope.is_class:
            self._attribute(name, layers)
        elif scope.is_module:
            self._leave(name)
        self._reach_place((scope, name), self.facts.reads_in(scope, name), layers)

    def _attribute(self, name: str, layers: Layers) -> None:
        """Follow a value that is stored in an attribute, of any object of the module."""
        self._leave(name)
        self._reach_place(("attribute", name), self.destinations.attribute_reads(name), layers)

    def _key(self, key: str, layers: Layers) -> None:
        """Follow a value that is stored under a key, or in an option."""
        self._reach_place(("key", key), self.destinations.key_reads(key), layers)
        self._attribute(key, layers)

    def _leave(self, name: str) -> None:
        """Follow a value to the other files, which may read it by a name."""
        known = self.destinations.is_device_place(name)
        self.use |= Use.DEVICE if known else Use.UNKNOWN

    # -- reads ----------------------------------------------------------------------------------------

    def _subscript(self, node: ast.Subscript, layers: Layers, is_container: bool) -> None:
        if not is_container or not layers:
            self.use |= Use.UNKNOWN
            return
        if isinstance(node.slice, ast.Slice):
            self._reach(node, ("", *layers[1:]))
            return
        wanted = str(node.slice.value) if isinstance(node.slice, ast.Constant) else ""
        if not wanted or not layers[0] or wanted == layers[0]:
            if isinstance(node.ctx, ast.Load):
                self._reach(node, layers[1:])

    def _attribute_of(self, node: ast.Attribute, name: str, layers: Layers) -> None:
        call = self.tree.parents.get(node)
        if isinstance(call, ast.Call) and call.func is node:
            self._method(call, name, layers)
        elif layers and layers[0] == name:
            self._reach(node, layers[1:])
        else:
            self.use |= Use.UNKNOWN

    def _method(self, call: ast.Call, name: str, layers: Layers) -> None:
        """Follow what a method of a string or of a container returns."""
        if name in ("get", "pop", "popleft") and layers:
            wanted = _text(call.args[0]) if call.args else ""
            if not wanted or not layers[0] or wanted == layers[0]:
                self._reach(call, layers[1:])
        elif name in ("values", "copy") and layers:
            self._reach(call, ("", *layers[1:]))
        elif name == "items" and layers:
            self._reach(call, ("", "1", *layers[1:]))
        elif name in ("format", "join", "strip", "lower"):
            self._reach(call, ())
        else:
            self.use |= Use.SHOWN if name in _SHOWS else Use.UNKNOWN

    def _starred(self, node: ast.Starred, layers: Layers) -> None:
        parent = self.tree.parents.get(node)
        if isinstance(parent, ast.Call) and layers and layers[0].isdigit():
            position = _position(parent, node)
            place = None if position is None else position + int(layers[0])
            self._argument(parent, parent.func, place, layers[1:])
        elif isinstance(parent, (ast.List, ast.Tuple, ast.Set)):
            self._reach(parent, ("", *layers[1:]))
        else:
            self.use |= Use.UNKNOWN

    def _compared(self, node: ast.AST) -> None:
        """Follow a value into a test: what runs only if it is true may need CUDA."""
        self.use |= Use.SHOWN
        for child, parent in self.tree.ancestors(node):
            if isinstance(parent, ast.If) and child is parent.test:
                code = "".join(map(self.facts.source.code, parent.body))
            elif isinstance(parent, ast.IfExp) and child is parent.test:
                code = self.facts.source.code(parent.body)
            elif isinstance(parent, ast.stmt):
                return
            else:
                continue
            if _NEEDS_CUDA.search(code):
                self.use |= Use.DEVICE
            return

    # -- calls ----------------------------------------------------------------------------------------

    def _keyword(self, call: ast.Call, name: str | None, layers: Layers) -> None:
        if name is None:  # **options
            if layers and layers[0]:
                self._argument(call, call.func, layers[0], layers[1:])
            else:
                self.use |= Use.UNKNOWN
        else:
            self._argument(call, call.func, name, layers)

    def _argument(self, call: ast.Call, function: ast.expr, place: Place | None, layers: Layers) -> None:
        """Follow an argument of a call.

        Args:
            call: the call.
            function: the function that gets the argument, also by `partial`.
            place: the position or keyword of the argument, None if that is not known.
            layers: the containers around the value.
        """
        name = last_name(function)
        if place is None:
            self.use |= Use.UNKNOWN
        elif name == "partial" and isinstance(place, str) and call.args and function is call.func:
            self._argument(call, call.args[0], place, layers)
        elif name == "partial" and isinstance(place, int) and place and function is call.func:
            self._argument(call, call.args[0], place - 1, layers)
        elif self._passed_on(call, name, place, layers):
            return
        elif functions := list(self._functions(function)):
            for each in functions:
                self._parameter(each, place, layers)
        elif self.facts.call(call, "torch.device") and isinstance(self.tree.parents.get(call), ast.Compare):
            self.use |= Use.SHOWN
        elif not layers and (
            takes_device(self.facts, function, place) or self.destinations.receives_device(name, place)
        ):
            self.use |= Use.DEVICE
        else:
            if layers and layers[0] and not layers[0].isdigit():
                self._key(layers[0], layers[1:])
            self.use |= Use.SHOWN if name in _SHOWS else Use.UNKNOWN

    def _passed_on(self, call: ast.Call, name: str, place: Place, layers: Layers) -> bool:  # noqa: C901, PLR0912 (one case a function)
        """Follow the argument of a function that returns or stores it; return whether it is one."""
        if name in _SAME and place in (0, "default", "default_factory", "factory"):
            self._reach(call, layers)
        elif (name in _DEFAULTS and place == 1) or (name == "getattr" and place == 2):
            self._reach(call, layers)
            if name == "setdefault":
                self._key(_text(call.args[0]), layers)
        elif name in ("next", "choice") and place == 0 and layers:
            self._reach(call, layers[1:])
        elif name == "zip" and isinstance(place, int) and layers:
            self._reach(call, ("", str(place), *layers[1:]))
        elif name == "enumerate" and place == 0 and layers:
            self._reach(call, ("", "1", *layers[1:]))
        elif name in ("map", "filter") and isinstance(place, int) and place and layers:
            self._argument(call, call.args[0], place - 1, layers[1:])
        elif name in _OBJECTS and isinstance(place, str):
            self._reach(call, (place, *layers))
        elif name in _OBJECTS and place == 0 and layers:
            self._reach(call, layers)
        elif name in ("append", "add", "insert", "appendleft") and isinstance(call.func, ast.Attribute):
            self._store(call.func.value, ("", *layers))
        elif name == "setattr" and place == 2:
            self._attribute(_text(call.args[1]), layers)
        elif name == "format" or (name == "join" and layers):
            self._reach(call, ())
        elif name == "update" and isinstance(place, str):
            self._key(place, layers)
        elif name == "update" and place == 0 and layers and layers[0]:
            self._key(layers[0], layers[1:])
        elif name in ("add_argument", "DEFINE_string") and place in ("default", 1):
            for option in option_names(call):
                self._key(option, layers)
        elif name == "option" and place == "default":
            for option in option_names(call):
                self._decorated(call, option, layers)
        elif name == "parametrize" and place == 1 and layers:
            self._decorated(call, _text(call.args[0]), layers[1:])
        else:
            return False
        return True

    def _decorated(self, decorator: ast.Call, parameter: str, layers: Layers) -> None:
        """Follow a value that a decorator passes to a parameter of its function."""
        function = self.tree.parents.get(decorator)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._parameter(function, parameter, layers)
        else:
            self.use |= Use.UNKNOWN

    # -- functions of the module ----------------------------------------------------------------------

    def _functions(self, callee: ast.expr) -> Iterator[Function | ast.ClassDef]:
        """Yield the functions and classes of the module that a call may reach."""
        match callee:
            case ast.Lambda():
                yield callee
            case ast.Name(id=name):
                found = self.tree.scope(callee).lookup(name)
                for binding in found[1] if found is not None else ():
                    if isinstance(binding.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                        yield binding.node
                    elif isinstance(binding.value, ast.Lambda):
                        yield binding.value
            case ast.Attribute(attr=name) if name not in ("to", "cuda"):
                yield from self.destinations.methods.get(name, ())

    def _parameter(self, function: Function | ast.ClassDef, place: Place, layers: Layers) -> None:
        """Follow a value into the parameter of a function, or of the constructor of a class."""
        if isinstance(function, ast.ClassDef):
            self._constructor(function, place, layers)
            return
        arguments = function.args
        parameters = [*arguments.posonlyargs, *arguments.args]
        if isinstance(self.tree.parents.get(function), ast.ClassDef) and not _is_static(function):
            parameters = parameters[1:]
        scope = self.tree.scopes.get(function) or self.tree.scope(
            function.body if isinstance(function, ast.Lambda) else function.body[0]
        )
        names = {parameter.arg for parameter in (*parameters, *arguments.kwonlyargs)}
        if isinstance(place, str) and place in names:
            self._name(scope, place, layers)
        elif isinstance(place, int) and place < len(parameters):
            self._name(scope, parameters[place].arg, layers)
        elif isinstance(place, str) and arguments.kwarg is not None:
            self._name(scope, arguments.kwarg.arg, (place, *layers))
        elif isinstance(place, int) and arguments.vararg is not None:
            self._name(scope, arguments.vararg.arg, (str(place - len(parameters)), *layers))
        else:
            self.use |= Use.UNKNOWN

    def _constructor(self, node: ast.ClassDef, place: Place, layers: Layers) -> None:
        fields: list[str] = []
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                self._parameter(statement, place, layers)
                return
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                fields.append(statement.target.id)
        if isinstance(place, str):
            self._attribute(place, layers)
        elif place < len(fields):
            self._attribute(fields[place], layers)
        else:
            self.use |= Use.UNKNOWN

    def _default(self, arguments: ast.arguments, node: ast.expr, layers: Layers) -> None:
        """Follow the default of a parameter into the function."""
        owner = self.tree.parents[arguments]
        assert isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        plain = [*arguments.posonlyargs, *arguments.args]
        if node in arguments.defaults:
            parameter = plain[arguments.defaults.index(node) - len(arguments.defaults)]
        else:
            parameter = arguments.kwonlyargs[arguments.kw_defaults.index(node)]
        scope = self.tree.scopes.get(owner) or self.tree.scope(owner.body)  # type: ignore[arg-type]
        self._name(scope, parameter.arg, layers)

    def _returned(self, function: ast.AST, layers: Layers) -> None:
        """Follow a value that a function returns to its calls."""
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.use |= Use.UNKNOWN
            return
        name = function.name
        self._leave(name)
        is_property = any(last_name(decorator) == "property" for decorator in function.decorator_list)
        if is_property:
            self._attribute(name, layers)
        else:
            self._reach_place(("call", name), self.destinations.calls(name), layers)

    def _result_of(self, function: ast.Lambda, layers: Layers) -> None:
        """Follow the value of a lambda, where it is called for its value alone."""
        parent = self.tree.parents.get(function)
        if isinstance(parent, ast.keyword) and parent.arg in ("default_factory", "factory"):
            parent = self.tree.parents.get(parent)
            assert isinstance(parent, ast.Call)
            self._reach(parent, layers)
        elif isinstance(parent, ast.Call) and last_name(parent.func) == "map":
            self._reach(parent, ("", *layers))
        else:
            self.use |= Use.UNKNOWN


def _text(node: ast.expr | None) -> str:
    """Return the text of a string literal, empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _position(call: ast.Call, node: ast.expr) -> int | None:
    """Return the position of an argument, None behind `*arguments`."""
    position = call.args.index(node)
    return None if any(isinstance(before, ast.Starred) for before in call.args[:position]) else position


def _is_static(function: Function) -> bool:
    decorators = [] if isinstance(function, ast.Lambda) else function.decorator_list
    return any(last_name(decorator) == "staticmethod" for decorator in decorators)
