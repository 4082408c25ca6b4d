"""Infer the kinds of a parameter from its annotation, its default, and the calls of its function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from devicefix.facts.flow.kinds.annotations import Annotations
from devicefix.facts.flow.kinds.kind import NUMBERS, UNKNOWN, Kind, Kinds, union
from devicefix.facts.flow.parameters import CALLED, called, described, positional
from devicefix.facts.names import Names
from devicefix.facts.scopes import FUNCTIONS, Function, Scope, dotted, with_defaults
from devicefix.facts.values import last_name

_SPAWNS = (
    "torch.multiprocessing.spawn",
    "torch.multiprocessing.spawn.spawn",
    "torch.multiprocessing.start_processes",
)


# What is read of tensors and modules.
_OF_OBJECTS = re.compile(r"(?<![\w.])(\w+)\.(?:device|dtype|shape|size|dim|to|config|parameters)\b")


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
        if not isinstance(function, FUNCTIONS):
            return Kinds(open=True)
        if function.args.vararg is parameter or function.args.kwarg is parameter:
            return Kinds({Kind.COLLECTION: parameter})
        kinds = Kinds(open=True) if default is None else self.of(default, depth) | Kinds(open=True)
        if isinstance(function, ast.Lambda):
            passed = list(self._arguments_of_lambda(function, parameter, depth))
            at_once = self._facts.tree.call_of(function) is not None and passed  # nobody else calls it
            return union(passed if at_once else [kinds, *passed])
        return union([kinds, *self._arguments(function, parameter, depth), self._passed(function, parameter)])

    def _passed(self, function: Function, parameter: ast.arg) -> Kinds:
        """Return the kinds of what the calls in other files pass for a parameter that may be a device."""
        if self._is_object(function, parameter.arg):
            return Kinds()
        name, place = described(self._facts.tree, function, parameter.arg)
        found = self._facts.others.passed(self._objects(function) or name, *place)
        return Kinds({Kind[kind]: parameter for kind in found})

    def _objects(self, function: Function) -> str:
        """Return the class, with `()`, whose objects run a method when they are called, or an empty text."""
        owner = self._facts.tree.parents.get(function)
        return f"{owner.name}()" if isinstance(owner, ast.ClassDef) and function.name in CALLED else ""

    def _is_object(self, function: Function, name: str) -> bool:
        """Return whether a function reads attributes of a parameter that no device, number or name has."""
        given = positional(self._facts.tree, function)
        if any(each.arg == name and each not in given for each in function.args.args[:1]):
            return True  # `self`
        return name in self._facts.once(_objects, self._facts.tree.scopes[function])

    def _arguments(
        self, function: Function, parameter: ast.arg, depth: int, *, elements: bool = False
    ) -> Iterator[Kinds]:
        """Yield the kinds of what the calls in the module pass for a parameter, or of its elements."""
        tree, infer = self._facts.tree, self.elements if elements else self.of
        method = isinstance(tree.parents.get(function), ast.ClassDef)
        name = called(tree, function)
        parameters = [arg for arg, _ in with_defaults(function.args)]
        every = [*function.args.posonlyargs, *function.args.args]
        owner = self._objects(function)[:-2]
        made = (each for each in tree.calls_with_name(owner) if last_name(each.func) == owner)
        of_objects = [call for each in made for call in calls_of_object(self._facts, each)]
        for node in map(_of_partial, (*tree.calls_with_name(name), *of_objects)):
            if (node in of_objects or self._calls(node.func, name, method)) and parameter in parameters:
                by_name = isinstance(node.func, ast.Name) and name == function.name
                given = every if by_name else positional(tree, function)
                position = given.index(parameter) if parameter in given else -1
                passed = argument_of(node, parameter.arg, position)
                if passed is not None:
                    yield infer(passed, depth)
            elif not method and every[:1] == [parameter] and self._spawns(node, function):
                yield Kinds({Kind.INDEX: node})
            elif not method and parameter in every and self._maps(node, name):
                values = node.args[every.index(parameter) + 1 :]
                yield self.elements(values[0], depth) if values else UNKNOWN

    def _arguments_of_lambda(self, function: ast.Lambda, parameter: ast.arg, depth: int) -> Iterator[Kinds]:
        """Yield the kinds of what the calls in the module pass for a parameter of a lambda."""
        positional = [*function.args.posonlyargs, *function.args.args]
        position = positional.index(parameter) if parameter in positional else -1
        for call in self._calls_of(function):
            if function in call.args:  # `map(lambda …, values)`
                if 0 <= position < len(call.args) - 1:
                    yield self._parts(call.args[position + 1], depth) | UNKNOWN
            elif (passed := argument_of(call, parameter.arg, position)) is not None:
                yield self.of(passed, depth)

    def _more_arguments(self, node: ast.expr, depth: int) -> Kinds:
        """Return the kinds of what the calls in the module pass for `*values`, `**values` or in `values`."""
        name = dotted(node) or ""
        found = self._facts.tree.lookup(node)
        owner = found[0].node if found is not None else None
        if not isinstance(owner, FUNCTIONS):
            return UNKNOWN
        if owner.args.kwarg is not None and owner.args.kwarg.arg == name:
            values = (each.value for call in self._calls_of(owner) for each in call.keywords)
            return union(self.of(value, depth - 1) for value in values)
        if owner.args.vararg is None or owner.args.vararg.arg != name:
            parameters = [each for each, _ in with_defaults(owner.args) if each.arg == name]
            if isinstance(owner, ast.Lambda) or not parameters:
                return UNKNOWN
            return self._limited(self._elements_passed, parameters[0], depth)  # type: ignore[arg-type]  # asked once
        arguments = (argument for call in self._calls_of(owner) for argument in call.args)
        plain = (argument for argument in arguments if not isinstance(argument, ast.Starred))
        return union(self.of(argument, depth - 1) for argument in plain)

    def _elements_passed(self, parameter: ast.arg, depth: int) -> Kinds:
        """Return the kinds of the elements of what the calls in the module pass for a parameter."""
        function = self._facts.tree.parents[self._facts.tree.parents[parameter]]
        assert isinstance(function, Function)
        return union(self._arguments(function, parameter, depth - 1, elements=True)) | UNKNOWN

    def _calls_of(self, function: Function | ast.Lambda) -> Iterator[ast.Call]:
        """Yield the calls of a function by its name, or of a lambda, also by `map`."""
        tree = self._facts.tree
        if not isinstance(function, ast.Lambda):
            name = function.name
        else:
            parent = tree.parents.get(function)
            if isinstance(parent, ast.Call) and (parent.func is function or last_name(parent.func) == "map"):
                yield parent
            match parent:
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.NamedExpr(target=ast.Name(id=name)):
                    pass
                case _:
                    return
        yield from (node for node in tree.calls_with_name(name) if last_name(node.func) == name)

    def _calls(self, function: ast.expr, name: str, method: bool) -> bool:
        if isinstance(function, ast.Name):
            return function.id == name
        return method and isinstance(function, ast.Attribute) and function.attr == name

    def _maps(self, call: ast.Call, name: str) -> bool:
        """Return whether a call calls a function with elements of collections: `map(function, values)`."""
        function = call.args[0] if call.args else None
        return last_name(call.func) == "map" and isinstance(function, ast.Name) and function.id == name

    def _spawns(self, call: ast.Call, function: Function) -> bool:
        """Return whether a call starts processes that call a function with their rank."""
        spawned = argument_of(call, "fn", 0)
        is_named = isinstance(spawned, ast.Name) and spawned.id == function.name
        return is_named and self._facts.resolve(call.func) in _SPAWNS


def _objects(facts: Names, scope: Scope) -> frozenset[str]:
    """Return the names of which a function reads attributes that no device, number or name has."""
    function = scope.node
    assert isinstance(function, Function)
    lines = facts.tree.words.lines[function.lineno - 1 : function.end_lineno]
    return frozenset(_OF_OBJECTS.findall("\n".join(lines)))


def _of_partial(call: ast.Call) -> ast.Call:
    """Return the call that `partial(f, x)` makes, which is none of the tree; any other call as it is."""
    if last_name(call.func) != "partial" or not call.args:
        return call
    return ast.Call(call.args[0], call.args[1:], call.keywords)


def calls_of_object(facts: Names, made: ast.Call) -> Iterator[ast.Call]:
    """Yield the calls of the object that a call makes: `Net()(x)`, `net(x)`, `self.net(x)`."""
    tree = facts.tree
    while isinstance(method := tree.parents.get(made), ast.Attribute) and (call := tree.call_of(method)):
        made = call  # `Net().to(device)`
    yield from filter(None, [tree.call_of(made)])
    for path in filter(None, map(dotted, getattr(tree.parents.get(made), "targets", ()))):
        calls = tree.calls_with_name(path.rpartition(".")[2])
        yield from (each for each in calls if dotted(each.func) == path)


def argument_of(call: ast.Call, name: str, position: int) -> ast.expr | None:
    """Return what a call passes for a parameter, None if it shows nothing."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
        if keyword.arg is None and isinstance(keyword.value, ast.Dict):
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    return value
    arguments = list(_unpacked(call.args)) if position >= 0 else ()
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
