"""Infer the kinds of a parameter from its annotation, its default, and the calls of its function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from devicefix.facts.flow.kinds.annotations import Annotations
from devicefix.facts.flow.kinds.kind import NUMBERS, UNKNOWN, Kind, Kinds, union
from devicefix.facts.flow.parameters import Function, called, described
from devicefix.facts.scopes import with_defaults
from devicefix.facts.values import last_name

SPAWNS = (
    "torch.multiprocessing.spawn",
    "torch.multiprocessing.spawn.spawn",
    "torch.multiprocessing.start_processes",
)


_OF_OBJECTS = "(?:device|dtype|shape|size|dim|to|config|parameters)"  # of tensors and modules


class Parameters(Annotations):
    """The kinds of parameters."""

    def _parameter(self, parameter: ast.arg, default: ast.expr | None, depth: int) -> Kinds:
        """Return the kinds of a parameter: by its annotation, or by its default and the module's calls."""
        function = self._facts.tree.parents[self._facts.tree.parents[parameter]]
        if parameter.annotation is not None:
            kinds = self.annotated(parameter.annotation)
            if kinds.shown({Kind.STRING}) and isinstance(function, Function):  # which nothing checks
                calls = self._arguments(function, parameter, depth)
                numbers = {kind: each.seen[kind] for each in calls for kind in NUMBERS & each.seen.keys()}
                return kinds | Kinds(numbers)
            if not kinds.unknown:
                return kinds
        assert isinstance(function, Function)
        if function.args.vararg is parameter or function.args.kwarg is parameter:
            return Kinds({Kind.COLLECTION: parameter})
        kinds = Kinds(open=True) if default is None else self.of(default, depth) | Kinds(open=True)
        call = self._facts.tree.parents[function]
        if isinstance(call, ast.Call) and call.func is function:  # nobody else calls it
            passed = argument_of(call, *described(self._facts.tree, function, parameter.arg)[1])
            return kinds if passed is None else self.of(passed, depth)
        if not called(self._facts.tree, function):
            return kinds
        return union([kinds, *self._arguments(function, parameter, depth), self._passed(function, parameter)])

    def _passed(self, function: Function, parameter: ast.arg) -> Kinds:
        """Return the kinds of what the calls in other files pass for a parameter that may be a device."""
        if self._is_object(function, parameter.arg):
            return Kinds()
        name, place = described(self._facts.tree, function, parameter.arg)
        found = self._facts.others.passed(name, *place)
        return Kinds({Kind[kind]: parameter for kind in found})

    def _is_object(self, function: Function, name: str) -> bool:
        """Return whether a function reads attributes of a parameter that no device, number or name has."""
        is_method = isinstance(self._facts.tree.parents.get(function), ast.ClassDef)
        if is_method and function.args.args and function.args.args[0].arg == name:
            return True
        lines = self._facts.tree.words.lines[function.lineno - 1 : function.end_lineno]
        return re.search(rf"\b{name}\.{_OF_OBJECTS}\b", "\n".join(lines)) is not None

    def _arguments(self, function: Function, parameter: ast.arg, depth: int) -> Iterator[Kinds]:
        """Yield the kinds of what the calls in the module pass for a parameter."""
        tree = self._facts.tree
        method = isinstance(tree.parents.get(function), ast.ClassDef)
        name = called(tree, function)
        parameters = [arg for arg, _ in with_defaults(function.args)]
        positional = [*function.args.posonlyargs, *function.args.args]
        found = tree.nodes_with_name(name)
        for node in (_of_partial(each) for each in found if isinstance(each, ast.Call)):
            if self._calls(node.func, name, method) and parameter in parameters:
                bound = method and not (
                    isinstance(node.func, ast.Name) and name == getattr(function, "name", "")
                )
                position = positional.index(parameter) - bound if parameter in positional else -1
                passed = argument_of(node, parameter.arg, position)
                if passed is not None:
                    yield self.of(passed, depth)
            elif not method and positional[:1] == [parameter] and self._spawns(node, name):
                yield Kinds({Kind.INDEX: node})
            elif not method and parameter in positional and self._maps(node, name):
                values = node.args[positional.index(parameter) + 1 :]
                yield self.elements(values[0], depth) if values else UNKNOWN

    def _calls(self, function: ast.expr, name: str, method: bool) -> bool:
        if isinstance(function, ast.Name):
            return function.id == name
        return method and isinstance(function, ast.Attribute) and function.attr == name

    def _maps(self, call: ast.Call, name: str) -> bool:
        """Return whether a call calls a function with elements of collections: `map(function, values)`."""
        function = call.args[0] if call.args else None
        return last_name(call.func) == "map" and isinstance(function, ast.Name) and function.id == name

    def _spawns(self, call: ast.Call, name: str) -> bool:
        """Return whether a call starts processes that call a function with their rank."""
        spawned = argument_of(call, "fn", 0)
        return (
            isinstance(spawned, ast.Name) and spawned.id == name and self._facts.resolve(call.func) in SPAWNS
        )


def _of_partial(call: ast.Call) -> ast.Call:
    """Return the call that `partial(f, x)` makes, which is none of the tree; any other call as it is."""
    if last_name(call.func) != "partial" or not call.args:
        return call
    return ast.Call(call.args[0], call.args[1:], call.keywords)


def argument_of(call: ast.Call, name: str, position: int) -> ast.expr | None:
    """Return what a call passes for a parameter, None if it shows nothing."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
        if keyword.arg is None and isinstance(keyword.value, ast.Dict):
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    return value
    arguments = list(_unpacked(call.args))
    if any(isinstance(argument, ast.Starred) for argument in arguments[: position + 1]):
        return None
    return arguments[position] if 0 <= position < len(arguments) else None


def _unpacked(arguments: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """Yield arguments, and those in a list or tuple behind a `*`."""
    for argument in arguments:
        match argument:
            case ast.Starred(value=ast.List(elts=elements) | ast.Tuple(elts=elements)):
                yield from _unpacked(elements)
            case _:
                yield argument
