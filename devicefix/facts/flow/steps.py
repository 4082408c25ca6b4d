"""Step forwards within a module: to the reads of what holds a value, into functions, and back to their calls.

Every question about where a value goes takes these steps; see `forwards`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from devicefix.facts.flow.kinds.objects import fields_of, methods_of, names_of_fields
from devicefix.facts.flow.parameters import CALLED, Function, Place, positional
from devicefix.facts.flow.sinks import is_of_tensor
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, Scope, dotted, with_defaults
from devicefix.facts.values import PROPERTIES, last_name

# The containers around a value, the outer one first: each by the value's key or position, empty if any.
Layers = tuple[str, ...]
Method = ast.FunctionDef | ast.AsyncFunctionDef
_HOPS = 4  # how many names of a function to follow from one to the next


@dataclass(frozen=True, slots=True)
class Variable:
    """A name in one scope, or an attribute of one class.

    Attributes:
        name: its name, without the object whose attribute it is.
        reads: the expressions that read it in this module.
        bindings: the places that bind it in this module.
        attribute: whether it is an attribute, and part of an interface.
        elsewhere: how other files may read it: `x` for a name of the module, `self.x` for an attribute of its
            classes, `.x` for an attribute of another object; empty for a local variable.
    """

    name: str
    reads: Sequence[ast.expr]
    bindings: Sequence[Binding]
    attribute: bool = False
    elsewhere: str = ""


class Steps:
    """The steps of the values of one module.

    Args:
        facts: the facts of the module, with what the other files show.
        zero: whether the values are numbers that are 0 without CUDA.
    """

    def __init__(self, facts: Facts, *, zero: bool = False) -> None:
        self.facts = facts
        self.zero = zero
        self.tree = facts.tree
        self._variables: dict[tuple[object, str], Variable] = {}

    # -- to the reads of what holds a value -----------------------------------------------------------

    def variable(self, node: ast.Name | ast.Attribute) -> Variable:
        """Return the variable that a name or an attribute refers to."""
        if isinstance(node, ast.Attribute):
            return self.attribute(node)
        found = self.tree.scope(node).lookup(node.id)
        return self.name(found[0], node.id) if found is not None else Variable(node.id, (), ())

    def name(self, scope: Scope, name: str) -> Variable:
        """Return the variable of a name in a scope."""
        key = (scope, name)
        if key not in self._variables:
            reads = list(self.facts.reads_in(scope, name))
            if isinstance(scope.node, ast.ClassDef):
                reads += self.attribute_reads(name, scope.node)
            elsewhere = name if scope.is_module else f"self.{name}" if scope.is_class else ""
            self._variables[key] = Variable(name, reads, scope.bindings.get(name, ()), elsewhere=elsewhere)
        return self._variables[key]

    def attribute(self, node: ast.Attribute) -> Variable:
        """Return an attribute of the class around it, or of any object with such an attribute."""
        owner = self._class_of(node)
        path = dotted(node) or f".{node.attr}"
        key = (owner, path)
        if key not in self._variables:
            bindings = [
                binding
                for other in self.tree.paths_by_name.get(node.attr, ())
                for binding in self.tree.attributes[other]
                if not other.startswith("self.") or related(self.facts, owner, self._owner(binding.node))
            ]
            reads = list(self.attribute_reads(node.attr, owner))
            elsewhere = f"self.{node.attr}" if owner is not None else f".{node.attr}"
            self._variables[key] = Variable(node.attr, reads, bindings, attribute=True, elsewhere=elsewhere)
        return self._variables[key]

    def attribute_reads(self, name: str, owner: ast.ClassDef | None = None) -> Iterator[ast.expr]:
        """Yield the reads of an attribute: of `self` in a class and those related, and of other objects."""
        for node in self.tree.nodes_with_name(name):
            if not (isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load)):
                continue
            parent = self.tree.parents.get(node)
            if isinstance(parent, ast.Call) and parent.func is node:
                continue  # a method: the values that are followed can't be called
            if self.facts.resolve(node) is None and related(self.facts, owner, self._class_of(node)):
                if not is_of_tensor(self.facts, node):
                    yield node

    def key_reads(self, key: str) -> Iterator[ast.expr]:
        """Yield the places that read a key of any dictionary."""
        for node in self.tree.nodes_with(f'"{key}"', f"'{key}'"):
            match node:
                case ast.Subscript(slice=ast.Constant(value=str(text)), ctx=ast.Load()) if text == key:
                    yield node
                case (
                    ast.Call(func=ast.Attribute(attr="get" | "pop"), args=[first, *_])
                    | ast.Call(func=ast.Name(id="getattr"), args=[_, first, *_])
                ) if text_of_literal(first) == key:
                    yield node

    def _class_of(self, node: ast.Attribute) -> ast.ClassDef | None:
        """Return the class whose attribute `self.x` is, None for an attribute of another object."""
        return self._owner(node) if dotted(node) == f"self.{node.attr}" else None

    def _owner(self, node: ast.AST) -> ast.ClassDef | None:
        return next(self.tree.around(node, ast.ClassDef), None)

    def is_shared(self, variable: Variable) -> bool:
        """Return whether another file may read a variable of the module."""
        return bool(variable.elsewhere) and self.facts.others.is_read_elsewhere(variable.elsewhere)

    def is_fixed(self, _target: ast.Attribute) -> bool:
        """Return whether what an attribute is bound to has a fix, so that its reads need none."""
        return False

    # -- into functions -------------------------------------------------------------------------------

    def function(self, called: ast.expr) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Return the function or method of this module that a call certainly reaches."""
        if isinstance(called, ast.Name):
            bindings = self.tree.bound(called)
        elif isinstance(called, ast.Attribute) and dotted(called) == f"self.{called.attr}":
            bindings = self._bindings_in(self._owner(called), called.attr)
        else:
            return None
        node = bindings[0].node if len(bindings) == 1 else None
        if isinstance(node, ast.ClassDef):
            node = self.constructor(node)
        return node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None

    def reached(self, call: ast.Call, wanted: Callable[[Method], object] = bool) -> Function | None:
        """Return the function of this module that a call reaches, also by an object of a class of it.

        Args:
            call: the call.
            wanted: which methods of objects matter; what these objects are takes long to find.
        """
        function = call.func
        own = function if isinstance(function, ast.Lambda) else self.function(function)
        if own is not None or self.facts.resolve(function) is not None:
            return own
        asked = [(function, name) for name in CALLED]  # `net(x)`
        asked += [(function.value, function.attr)] if isinstance(function, ast.Attribute) else []
        methods = self.facts.once(_methods_of_objects, self.tree.root)
        for receiver, name in asked:
            found = [(owner, each) for owner, each in methods.get(name, ()) if wanted(each)]
            classes = self.facts.kinds.of(receiver).classes if found else ()
            own = own or next((each for owner, each in found if owner in classes), None)
        return own

    def constructor(self, node: ast.ClassDef) -> ast.FunctionDef | None:
        """Return the `__init__` that a class defines, None if it has none."""
        created = self._bindings_in(node, "__init__")
        function = created[0].node if len(created) == 1 else None
        return function if isinstance(function, ast.FunctionDef) else None

    def _bindings_in(self, owner: ast.ClassDef | None, name: str) -> Sequence[Binding]:
        scope = self.tree.scopes.get(owner) if owner is not None else None
        return scope.bindings.get(name, ()) if scope is not None else ()

    def functions(self, called: ast.expr, hops: int = _HOPS) -> Iterator[Function | ast.ClassDef]:
        """Yield the functions and classes of the module that a call may reach, also by another name."""
        match called:
            case ast.Lambda():
                yield called
            case ast.Name():
                for binding in self.tree.bound(called):
                    if isinstance(binding.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        yield binding.node
                    elif isinstance(binding.node, ast.ClassDef):
                        yield self.constructor(binding.node) or binding.node
                    elif isinstance(binding.value, ast.Lambda):
                        yield binding.value
                    elif isinstance(binding.value, ast.Name) and hops:
                        yield from self.functions(binding.value, hops - 1)
            case ast.Attribute(value=owner, attr=name) if name not in ("to", "cuda"):
                is_super = isinstance(owner, ast.Call) and last_name(owner.func) == "super"
                own = self.tree.scope(called).node if is_super else None
                methods = self.facts.once(methods_of, self.tree.root).get(name, ())
                yield from (each for _, each in methods if each is not own)

    def parameter(self, function: Function, place: Place) -> tuple[Scope, str, Layers] | None:
        """Return the parameter that gets an argument: its scope, its name, and what it puts around it."""
        names = [parameter.arg for parameter in positional(self.tree, function)]
        arguments, scope = function.args, self.scope_of(function)
        if isinstance(place, int):
            if place < len(names):
                return scope, names[place], ()
            rest = arguments.vararg
            return (scope, rest.arg, (str(place - len(names)),)) if rest is not None else None
        if place in (*names, *(parameter.arg for parameter in arguments.kwonlyargs)):
            return scope, place, ()
        return (scope, arguments.kwarg.arg, (place,)) if arguments.kwarg is not None else None

    def with_default(self, arguments: ast.arguments, default: ast.expr) -> tuple[Scope, str]:
        """Return the parameter with some default: its scope and its name."""
        function = self.tree.parents[arguments]
        assert isinstance(function, Function)
        name = next(parameter.arg for parameter, each in with_defaults(arguments) if each is default)
        return self.scope_of(function), name

    def scope_of(self, function: Function) -> Scope:
        """Return the scope inside a function."""
        inside = function.body if isinstance(function, ast.Lambda) else function.body[0]
        return self.tree.scopes.get(function) or self.tree.scope(inside)

    def fields(self, called: ast.expr) -> Sequence[str]:
        """Return the fields of a dataclass or named tuple of this module, in the order of its arguments."""
        bindings = self.facts.bindings(called) if isinstance(called, ast.Name) else ()
        match bindings:
            case [Binding(value=ast.Call(func=made, args=[_, listed]))] if last_name(made) == "namedtuple":
                return names_of_fields(listed)
            case [Binding(node=ast.ClassDef() as node)]:
                return fields_of(node)
        return ()

    # -- back to the calls ----------------------------------------------------------------------------

    def calls(self, name: str) -> Iterator[ast.Call]:
        """Yield the calls of a function or method by its name."""
        for node in self.tree.nodes_with_name(name):
            if isinstance(node, ast.Call) and last_name(node.func) == name:
                yield node

    def calls_of(self, function: ast.AST) -> Iterator[ast.Call]:
        """Yield the calls that certainly reach a function or method of this module."""
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from (call for call in self.calls(function.name) if self.function(call.func) is function)

    def results(self, method: ast.AST) -> Iterator[ast.expr]:
        """Yield the reads of a property of this module, or the calls of a method of any object."""
        owner = self.tree.parents.get(method)
        if not isinstance(method, ast.FunctionDef) or not isinstance(owner, ast.ClassDef):
            return
        if is_property(method):
            yield from self.attribute_reads(method.name, owner)
            return
        for call in self.calls(method.name):
            if isinstance(call.func, ast.Attribute) and self.facts.resolve(call.func) is None:
                yield call


def _methods_of_objects(facts: Facts, module: Scope) -> dict[str, list[tuple[str, Method]]]:
    """Return the methods by name, as `methods_of` does, of the classes that the module names elsewhere."""
    methods, words = facts.once(methods_of, module), facts.tree.words
    return {
        name: [each for each in found if len(words.lines_with_name(each[0])) > 1]
        for name, found in methods.items()
    }


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is read like an attribute."""
    return any(last_name(decorator) in PROPERTIES for decorator in function.decorator_list)


def text_of_literal(node: ast.expr | None) -> str:
    """Return the text of a string literal, empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def related(facts: Facts, one: ast.ClassDef | None, other: ast.ClassDef | None) -> bool:
    """Return whether an object may be of both classes: they share an ancestor, or one is not known."""
    if one is None or other is None or one is other:
        return True
    return bool(family(facts, one) & family(facts, other))


def family(facts: Facts, node: ast.ClassDef) -> set[str]:
    """Return the names of a class and of those of its ancestors that this module defines."""
    found: set[str] = set()
    todo = [node]
    while todo:
        each = todo.pop()
        if each.name not in found:
            found.add(each.name)
            for base in each.bases:
                bindings = facts.bindings(base)
                todo += [binding.node for binding in bindings if isinstance(binding.node, ast.ClassDef)]
    return found
