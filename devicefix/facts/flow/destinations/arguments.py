"""Follow a value through the arguments, parameters and returned values of calls."""

from __future__ import annotations

import ast
from abc import ABC
from collections.abc import Sequence

from devicefix.facts.flow.destinations.stores import SHOWS, Stores, Use
from devicefix.facts.flow.kinds.bindings import PROPERTIES
from devicefix.facts.flow.kinds.objects import fields_of
from devicefix.facts.flow.parameters import Function
from devicefix.facts.flow.sinks import Place, load_location, maps_to_cuda, takes_device
from devicefix.facts.flow.steps import Layers, text_of_literal
from devicefix.facts.names import option_names
from devicefix.facts.scopes import dotted
from devicefix.facts.values import last_name

_SAME = {
    "list", "tuple", "set", "iter", "reversed", "sorted", "cycle", "str", "copy", "deepcopy", "deque",
    "cast", "field", "Field", "ib", "attrib", "Option", "Argument",
}  # fmt: skip
_DEFAULTS = {"get", "pop", "setdefault", "getenv", "next"}
_OBJECTS = {"dict", "Namespace", "SimpleNamespace", "EasyDict", "edict", "AttrDict", "DictConfig", "HParams"}


class Arguments(Stores, ABC):
    """The trail of a value into functions, and back out of them."""

    def _keyword(self, call: ast.Call, name: str | None, layers: Layers) -> None:
        if name is None:  # **options
            if layers and layers[0]:
                of_torch = (self.facts.resolve(call.func) or "").startswith("torch.")
                if of_torch or last_name(call.func) in ("to", "to_empty"):
                    self.use |= Use.UNPACKED
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
        if function is call.func:
            function, place = _applied(call, place)
        name = last_name(function)
        if place is None:
            self.use |= Use.UNKNOWN
        elif self._passed_on(call, name, place, layers):
            return
        elif use := self._harmless(call, function, layers):
            self.use |= use
        elif functions := list(self.steps.functions(function)):
            for each in functions:
                self._parameter(each, place, layers)
            if self._delegates(call, functions):
                self._foreign(call, function, place, layers)
        else:
            self._foreign(call, function, place, layers)

    def _delegates(self, call: ast.Call, functions: Sequence[Function | ast.ClassDef]) -> bool:
        """Return whether a method calls the method of that name of another object, of whatever class."""
        if not isinstance(call.func, ast.Attribute) or dotted(call.func.value) in ("self", "cls"):
            return False
        return any(scope.node in functions for scope in self.tree.scope(call).chain())

    def _foreign(self, call: ast.Call, function: ast.expr, place: Place, layers: Layers) -> None:
        """Follow the argument of a function of which only the name is known."""
        name = last_name(function)
        if not layers and (takes_device(self.facts, function, place) or self._receives(function, place)):
            self.use |= Use.DEVICE
            if len(call.args) + len(call.keywords) > 1 and self.facts.call(call, "torch.device"):
                self.use |= Use.NUMBERED
        else:
            if layers and layers[0] and not layers[0].isdigit():
                self._key(layers[0], layers[1:])
            self.use |= Use.SHOWN if name in SHOWS else Use.UNKNOWN

    def _receives(self, function: ast.expr, place: Place) -> bool:
        """Return whether a function of another file takes an argument for a device."""
        full = self.facts.resolve(function)
        if full is not None and Use.DEVICE in Use(self.others.use_of_argument(full, place)):
            return True
        return self.others.receives_device(last_name(function), place)

    def _harmless(self, call: ast.Call, function: ast.expr, layers: Layers) -> Use:
        """Return the use of an argument that is only compared, or that a call with a fix of its own takes."""
        if layers:
            location = load_location(self.facts, call)
            if isinstance(location, ast.IfExp):
                location = location.body  # as fixes select it
            return Use.OF_CUDA if location and maps_to_cuda(self.facts, location) else Use.NOTHING
        if self.facts.call(call, "torch.device") and isinstance(self.tree.parents.get(call), ast.Compare):
            return Use.SHOWN
        if isinstance(function, ast.IfExp):
            function = function.body  # as fixes choose a type
        return Use.OF_CUDA if (self.facts.resolve(function) or "").startswith("torch.cuda.") else Use.NOTHING

    def _passed_on(self, call: ast.Call, name: str, place: Place, layers: Layers) -> bool:  # noqa: C901, PLR0912 (one case a function)
        """Follow the argument of a function that returns or stores it; return whether it is one."""
        if name in _SAME and place in (0, "default", "default_factory", "factory"):
            self._reach(call, layers)
        elif (name in _DEFAULTS and place == 1) or (name == "getattr" and place == 2):
            self._reach(call, layers)
            if name == "setdefault":
                self._key(text_of_literal(call.args[0]), layers)
        elif name in ("next", "choice", "max", "min") and place == 0 and layers:
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
            self._attribute(text_of_literal(call.args[1]), layers)
        elif name == "format" or (name == "join" and layers):
            self._reach(call, ())
        elif name == "update" and isinstance(place, str):
            self._key(place, layers)
        elif name in ("replace", "_replace", "evolve") and isinstance(place, str):
            self._attribute(place, layers)
        elif name == "update" and place == 0 and layers and layers[0]:
            self._key(layers[0], layers[1:])
        elif name in ("add_argument", "DEFINE_string") and place in ("default", 1):
            for option in option_names(call):
                self._key(option, layers)
        elif name == "option" and place == "default":
            for option in option_names(call):
                self._decorated(call, option, layers)
        elif name == "parametrize" and place == 1 and layers:
            self._decorated(call, text_of_literal(call.args[0]), layers[1:])
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

    def _parameter(self, function: Function | ast.ClassDef, place: Place, layers: Layers) -> None:
        """Follow a value into the parameter of a function, or of the constructor of a class."""
        if isinstance(function, ast.ClassDef):
            self._constructor(function, place, layers)
        elif (found := self.steps.parameter(function, place)) is not None:
            scope, name, around = found
            self._name(scope, name, (*around, *layers))
        else:
            self.use |= Use.UNKNOWN

    def _constructor(self, node: ast.ClassDef, place: Place, layers: Layers) -> None:
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                self._parameter(statement, place, layers)
                return
        fields = fields_of(node)
        if isinstance(place, str):
            self._attribute(place, layers)
        elif place < len(fields):
            self._attribute(fields[place], layers)
        else:
            self.use |= Use.UNKNOWN

    def _returned(self, function: ast.AST, layers: Layers) -> None:
        """Follow a value that a function returns to its calls."""
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.use |= Use.UNKNOWN
            return
        name = function.name
        self._leave(name)
        self.use |= Use(self.others.use_of_result(name)) & Use.DEVICE
        if any(last_name(decorator) in PROPERTIES for decorator in function.decorator_list):
            self._attribute(name, layers)
            return
        self._reach_place(("call", name), self.steps.calls(name), layers)
        for read in self.tree.reads(name):
            self._made_by_factory(self.tree.parents.get(read), layers)

    def _made_by_factory(self, keyword: ast.AST | None, layers: Layers) -> bool:
        """Follow a value that a factory returns to the field that gets it; return whether there is one."""
        if not isinstance(keyword, ast.keyword) or keyword.arg not in ("default_factory", "factory"):
            return False
        call = self.tree.parents.get(keyword)
        assert isinstance(call, ast.Call)
        self._reach(call, layers)
        return True

    def _result_of(self, function: ast.Lambda, layers: Layers) -> None:
        """Follow the value of a lambda to its calls."""
        parent = self.tree.parents.get(function)
        if self._made_by_factory(parent, layers):
            return
        if isinstance(parent, ast.Call) and parent.func is function:
            self._reach(parent, layers)
        elif isinstance(parent, ast.Call) and last_name(parent.func) == "map":
            self._reach(parent, ("", *layers))
        elif isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
            name = parent.targets[0].id
            self._leave(name)
            self._reach_place(("call", name), self.steps.calls(name), layers)
        else:
            self.use |= Use.UNKNOWN


def _applied(call: ast.Call, place: Place | None) -> tuple[ast.expr, Place | None]:
    """Return the function or method that gets an argument, and the place there, as by `partial(f, x)`."""
    name = last_name(call.func)
    if name not in ("partial", "methodcaller") or not place or not call.args:
        return call.func, place
    first = call.args[0]
    if name == "methodcaller":
        first = ast.copy_location(ast.Attribute(call, text_of_literal(first), ast.Load()), call)
    return first, place if isinstance(place, str) else place - 1
