"""Follow a value through the arguments, parameters and returned values of calls."""

from __future__ import annotations

import ast
from abc import ABC
from collections.abc import Iterator, Sequence

from devicefix.facts.backends import takes_backend
from devicefix.facts.flow.forwards import library
from devicefix.facts.flow.forwards.trail import Trail, Use
from devicefix.facts.flow.kinds.objects import fields_of
from devicefix.facts.flow.parameters import Function, Place
from devicefix.facts.flow.sinks import load_location, maps_to_cuda, takes_device, turns_off
from devicefix.facts.flow.steps import Layers, Variable, is_property, text_of_literal
from devicefix.facts.hugging_face import takes_attention, takes_device_map
from devicefix.facts.module import Facts
from devicefix.facts.names import option_names
from devicefix.facts.scopes import dotted
from devicefix.facts.values import last_name

_TAKEN = Use.DEVICE | Use.BACKEND | Use.ATTENTION


class Calls(Trail, ABC):
    """The trail of a value into functions, and back out of them."""

    # -- into functions -------------------------------------------------------------------------------

    def _argument(self, call: ast.Call, function: ast.expr, place: Place | None, layers: Layers) -> None:
        """Follow an argument of a call.

        Args:
            call: the call.
            function: the function that gets the argument, also by `partial`.
            place: the position or keyword of the argument, None if that is not known.
            layers: the containers around the value.
        """
        if self.certain and not (layers and last_name(function) in library.SEQUENCES):
            self._certain_argument(call, place, layers)
            return
        if function is call.func:
            function, place = _applied(call, place)
        if place is None:
            self._end()
        elif self._kept(call, last_name(function), place, layers):
            return
        elif use := self._harmless(call, function, place, layers):
            self._end(use)
        elif functions := list(self.steps.functions(function)):
            for each in functions:
                self._parameter(each, place, layers)
            if self._delegates(call, functions):
                self._foreign(call, function, place, layers)
        elif fields := self.steps.fields(function):
            self._field(fields, place, layers)
        else:
            self._foreign(call, function, place, layers)

    def _certain_argument(self, call: ast.Call, place: Place | None, layers: Layers) -> None:
        """Follow an argument of the function that a call certainly reaches, or of an object that keeps it."""
        self._end()
        item = self.tree.parents.get(call)
        if isinstance(item, ast.withitem) and item.optional_vars and last_name(call.func) == "nullcontext":
            self._store(item.optional_vars, layers)
        if layers or place is None or self._value is None:
            return
        function = self.steps.function(call.func)
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        parameter = None if function is None or starred else self.steps.parameter(function, place)
        held = [self.steps.name(*parameter[:2])] if parameter is not None and not parameter[2] else []
        if place in ("default", "const") and last_name(call.func) == "add_argument":
            held += [self._option(name) for name in option_names(call)]
        for variable in held:
            self._hold(variable, self.found.parameters)
        self.found.passed.update([self._value] if held else [])
        for read in () if self.steps.zero else self._reads_of_field(call, place):
            self._reach(read, ())

    def _option(self, name: str) -> Variable:
        return Variable(name, list(self.steps.attribute_reads(name)), (), attribute=True)

    def _reads_of_field(self, call: ast.Call, place: Place) -> Iterator[ast.expr]:
        """Yield the reads of the attribute, of any object, that an argument of a call becomes."""
        fields = self.steps.fields(call.func)
        if isinstance(place, int):
            yield from self.steps.attribute_reads(fields[place]) if place < len(fields) else ()
        elif place in fields or last_name(call.func) in library.KEEPS:
            yield from self.steps.attribute_reads(place)

    def _kept(self, call: ast.Call, name: str, place: Place, layers: Layers) -> bool:
        """Follow the argument of a function that returns or stores it; return whether it is one."""
        around = library.in_result(name, place, layers)
        stored = list(library.stored_as(call, name, place, layers))
        decorated = list(library.decorated_with(call, name, place, layers))
        if around is not None:
            self._reach(call, around)
            if isinstance(place, int) and place:
                self._name_holder(text_of_literal(call.args[place - 1]), layers)  # the key, for its default
        for key, inside in stored:
            self._key(key, inside)
        for parameter, inside in decorated:
            self._decorated(call, parameter, inside)
        if place in ("default", "value") and library.offers_both(call):
            self._end(Use.NAMED)
        if name in ("map", "filter") and isinstance(place, int) and place and layers:
            self._argument(call, call.args[0], place - 1, layers[1:])
        elif name in library.ADDS and isinstance(call.func, ast.Attribute):
            self._store(call.func.value, ("", *layers))
        else:
            return around is not None or bool(stored or decorated)
        return True

    def _delegates(self, call: ast.Call, functions: Sequence[Function | ast.ClassDef]) -> bool:
        """Return whether a method calls the method of that name of another object, of whatever class."""
        if not isinstance(call.func, ast.Attribute) or dotted(call.func.value) in ("self", "cls"):
            return False
        return any(scope.node in functions for scope in self.tree.scope(call).chain())

    def _foreign(self, call: ast.Call, function: ast.expr, place: Place, layers: Layers) -> None:
        """Follow the argument of a function of which only the name is known."""
        places = (place, *layers[:1])  # as in `model_kwargs={"device_map": ...}`
        taken = Use.NOTHING if layers else use_of_import(self.facts, function, place) & _TAKEN
        if not layers and takes_device(self.facts, function, place):
            taken |= Use.DEVICE
        if not layers and takes_backend(self.facts, function, place):
            taken |= Use.BACKEND
        if any(takes_attention(self.facts, function, each) for each in places):
            taken |= Use.ATTENTION
        if any(takes_device_map(self.facts, function, each) for each in places):
            taken |= Use.DEVICE
        if taken:
            self._end(taken)
            if len(call.args) + len(call.keywords) > 1 and self.facts.call(call, "torch.device"):
                self._end(Use.NUMBERED)
            return
        if layers and layers[0] not in ("", library.CALLED) and not layers[0].isdigit():
            self._key(layers[0], layers[1:])
        self._end(Use.SHOWN if last_name(function) in library.SHOWS else Use.UNKNOWN)
        if any(each.parameter for each in self.tree.bound(function)):
            self._end(Use.NAMED)  # the caller knows for what

    def _harmless(self, call: ast.Call, function: ast.expr, place: Place, layers: Layers) -> Use:
        """Return the use of an argument that is only compared, or that a call with a fix of its own takes."""
        if library.searches(last_name(function), place) or turns_off(self.facts, function):
            return self._as_name()
        if self.facts.call(call, *library.PATHS) or last_name(function) == "joinpath":
            return Use.SHOWN
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

    def _decorated(self, decorator: ast.Call, parameter: str, layers: Layers) -> None:
        """Follow a value that a decorator passes to a parameter of its function."""
        function = self.tree.parents.get(decorator)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._parameter(function, parameter, layers)
        else:
            self._end()

    def _parameter(self, function: Function | ast.ClassDef, place: Place, layers: Layers) -> None:
        """Follow a value into the parameter of a function, or of the constructor of a class."""
        if isinstance(function, ast.ClassDef):
            self._field(fields_of(function), place, layers)
        elif (found := self.steps.parameter(function, place)) is not None:
            scope, name, around = found
            self._name(scope, name, (*around, *layers))
        else:
            self._end()

    def _field(self, fields: Sequence[str], place: Place, layers: Layers) -> None:
        """Follow a value into a field of a class without a constructor of its own."""
        if isinstance(place, str):
            self._attribute(place, layers)
        elif place < len(fields):
            self._attribute(fields[place], layers)
        else:
            self._end()

    # -- back to the calls ----------------------------------------------------------------------------

    def _returned(self, function: ast.AST, layers: Layers) -> None:
        """Follow a value that a function returns to its calls."""
        if self.certain:
            self._certainly_returned(function, layers)
        elif isinstance(function, ast.Lambda):
            self._reach(function, (library.CALLED, *layers))
        elif not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._end()
        elif is_property(function):
            self._attribute(function.name, layers)
        else:
            self._end(Use(self.others.use_of_result(function.name)) & Use.DEVICE)
            name = function.name
            self._name_holder(name, layers)
            for key in (name, *layers[:1]):
                self._leave(key)
            self._reach_place(("call", name), self.steps.calls(name), layers)
            self._reach_place(("function", name), self.tree.reads(name), (library.CALLED, *layers))

    def _certainly_returned(self, function: ast.AST, layers: Layers) -> None:
        self._end()
        calls = [] if self.steps.zero and layers else list(self.steps.calls_of(function))
        if calls and self._value is not None and not layers:
            self.found.passed.add(self._value)
        for call in calls:
            self._reach(call, layers)
        for result in () if self.steps.zero or layers else self.steps.results(function):
            self._reach(result, ())


def use_of_import(facts: Facts, function: ast.expr, place: Place) -> Use:
    """Return what an imported function does with an argument."""
    name = facts.resolve(function)
    return Use(facts.others.use_of_argument(name, place)) if name is not None else Use.NOTHING


def _applied(call: ast.Call, place: Place | None) -> tuple[ast.expr, Place | None]:
    """Return the function or method that gets an argument, and the place there, as by `partial(f, x)`."""
    name = last_name(call.func)
    if name not in ("partial", "methodcaller") or not place or not call.args:
        return call.func, place
    first = call.args[0]
    if name == "methodcaller":
        first = ast.copy_location(ast.Attribute(call, text_of_literal(first), ast.Load()), call)
    return first, place if isinstance(place, str) else place - 1
