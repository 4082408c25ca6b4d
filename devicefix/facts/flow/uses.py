"""Follow a value: through names, attributes, arguments and returns, to the expressions that use it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from devicefix.facts.flow.binding import Pair, bound_by
from devicefix.facts.flow.kinds.bindings import PROPERTIES
from devicefix.facts.flow.kinds.objects import names_of_fields
from devicefix.facts.module import Facts
from devicefix.facts.names import option_names
from devicefix.facts.scopes import Binding, Scope, dotted, with_defaults
from devicefix.facts.values import last_name

_LIMIT = 500  # how many expressions to follow a value through

_BINDINGS = 20  # of a variable; its reads have other values, too
_KEEPS = ("SimpleNamespace", "Namespace", "replace", "_replace")  # what keeps its arguments as attributes


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


@dataclass(slots=True)
class Followed:
    """The uses of a value, found by following it.

    Attributes:
        uses: the expressions that hold the value where it is used, and not only bound to a name. An argument
            and a returned value are uses, also if the function is known and the value is followed beyond.
        variables: the names and attributes that hold the value on the way.
        parameters: those of them that are parameters, to which other callers may pass other values.
    """

    uses: list[ast.expr] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    parameters: list[Variable] = field(default_factory=list)


class Uses:
    """The uses of values in one module.

    Args:
        facts: the facts of the module.
        zero: whether the values are numbers that are 0 without CUDA, followed only as such: not where they
            are evaluated only with CUDA, not through `n or 1`, and not through the attributes of any object.
    """

    def __init__(self, facts: Facts, zero: bool = False) -> None:
        self.facts = facts
        self.zero = zero
        self.tree = facts.tree
        self._variables: dict[tuple[object, str], Variable] = {}
        self._followed: dict[ast.expr, Followed] = {}

    def of(self, value: ast.expr) -> Followed:
        """Return where the value of an expression goes."""
        if value not in self._followed:
            self._followed[value] = self._follow(value)
        return self._followed[value]

    def is_followed(self, use: ast.expr) -> bool:
        """Return whether an argument or a returned value is followed beyond the call, in this module."""
        return any(self._parameters_for(use)) or any(self._passed_on(use))

    def variable(self, node: ast.Name | ast.Attribute) -> Variable:
        """Return the variable that a name or an attribute refers to."""
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        found = self.tree.scope(node).lookup(node.id)
        return self._name(found[0], node.id) if found is not None else Variable(node.id, (), ())

    def _follow(self, value: ast.expr) -> Followed:
        found = Followed()
        todo: list[ast.expr] = [value]
        seen: set[ast.AST] = set()
        while todo and len(seen) < _LIMIT:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            if self.zero and node is not value and self.facts.is_guarded(node):
                continue
            for variable in (*self._bound_by(node), *(() if self.zero else self._unpacked(node))):
                if variable not in found.variables:
                    found.variables.append(variable)
                    todo += variable.reads if len(variable.bindings) <= _BINDINGS else ()
            for variable in self._parameters_for(node):
                if variable not in found.parameters:
                    found.parameters.append(variable)
                    todo += variable.reads
            todo += self._passed_on(node)
            todo += () if self.zero else self._held(node)
            if self._is_use(node):
                found.uses.append(node)
        found.uses += todo  # beyond the limit, nothing is known
        return found

    def _passed_on(self, node: ast.expr) -> Iterator[ast.expr]:
        """Yield the expressions around a node, or elsewhere, that have its value."""
        parent = self.tree.parents.get(node)
        match parent:
            case ast.IfExp(test=test) if node is not test:
                yield parent
            case ast.BoolOp(op=ast.Or(), values=values) if self.zero and node is not values[-1]:
                return
            case ast.BoolOp() | ast.NamedExpr():
                yield parent
            case ast.Await():
                yield parent
            case ast.Return():
                yield from self._calls(self.tree.scope(parent).node)

    def _held(self, node: ast.expr) -> Iterator[ast.expr]:
        """Yield the expressions of this module that may get a value from an object.

        It is a field of the object, or a method or property of its class returns it. Which object that is
        is not known, and other code may get the value as well: `is_followed` does not count these.
        """
        parent = self.tree.parents.get(node)
        match parent:
            case ast.Return():
                function = self.tree.scope(parent).node
                owner = self.tree.parents.get(function)
                if isinstance(function, ast.FunctionDef) and isinstance(owner, ast.ClassDef):
                    yield from self._results_of(function, owner)
            case ast.Call(args=args) if node in args:
                fields = self._fields(parent.func)
                if args.index(node) < len(fields):
                    yield from self._attribute_reads(fields[args.index(node)], None)
            case ast.keyword(arg=str(name)):
                call = self.tree.parents.get(parent)
                if isinstance(call, ast.Call):
                    if name in self._fields(call.func) or last_name(call.func) in _KEEPS:
                        yield from self._attribute_reads(name, None)

    def _results_of(self, method: ast.FunctionDef, owner: ast.ClassDef) -> Iterator[ast.expr]:
        """Yield the reads of a property, or the calls of a method of any object."""
        if any(last_name(decorator) in PROPERTIES for decorator in method.decorator_list):
            yield from self._attribute_reads(method.name, owner)
            return
        for node in self.tree.nodes_with_name(method.name):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr == method.name and self.facts.resolve(node.func) is None:
                    yield node

    def _fields(self, called: ast.expr) -> Sequence[str]:
        """Return the fields of a dataclass or named tuple of this module, in the order of its arguments."""
        bindings = self.facts.bindings(called) if isinstance(called, ast.Name) else ()
        match bindings:
            case [Binding(value=ast.Call(func=made, args=[_, listed]))] if last_name(made) == "namedtuple":
                return names_of_fields(listed)
            case [Binding(node=ast.ClassDef(body=body))]:
                return [last_name(each.target) for each in body if isinstance(each, ast.AnnAssign)]
        return ()

    def _is_use(self, node: ast.expr) -> bool:
        """Return whether an expression is more than a step on the way of its value."""
        parent = self.tree.parents.get(node)
        match parent:
            case ast.IfExp(test=test):
                return node is test
            case ast.BoolOp(values=values):
                return node is not values[-1]
            case ast.Assign(targets=targets):
                return any(self._target(target, target) is None for target in targets)
            case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
                return self._target(target, target) is None
            case ast.Tuple() | ast.List() | ast.Match():
                return not any(self._bound_by(node))
            case ast.arguments():
                return False
            case ast.Expr():
                return False
        return True

    def _bound_by(self, node: ast.expr) -> Iterator[Variable]:
        """Yield the names and attributes that are bound to the value of an expression."""
        for target, value in self._bound_around(node):
            # A capture of a pattern is no node of the tree.
            at = target if target in self.tree.parents else node
            variable = self._target(target, at) if value is node else None
            if variable is not None:
                yield variable

    def _unpacked(self, node: ast.expr) -> Iterator[Variable]:
        """Yield the variables that get a value which a function returns in a tuple: `a, b = f()`."""
        returned = self.tree.parents.get(node)
        if not isinstance(returned, ast.Tuple) or not isinstance(self.tree.parents.get(returned), ast.Return):
            return
        for call in self._calls(self.tree.scope(returned).node):
            match self.tree.parents.get(call):
                case ast.Assign(targets=[ast.Tuple(elts=targets)]) if len(targets) == len(returned.elts):
                    target = targets[returned.elts.index(node)]
                    starred = any(isinstance(each, ast.Starred) for each in (*targets, *returned.elts))
                    variable = None if starred else self._target(target, target)
                    if variable is not None:
                        yield variable

    def _bound_around(self, node: ast.expr) -> Iterator[Pair]:
        """Yield what is bound by what is around a value: a walrus, a loop, a pattern, a statement."""
        for _, parent in self.tree.ancestors(node):
            match parent:
                case ast.NamedExpr(target=target, value=value):
                    yield target, value
                case ast.Match(cases=cases):
                    yield from (pair for case in cases for pair in bound_by(self.facts, case))
                case ast.stmt() | ast.comprehension() | ast.withitem():
                    yield from bound_by(self.facts, parent)
                case _:
                    continue
            return

    def _target(self, target: ast.expr, at: ast.expr) -> Variable | None:
        """Return the variable that a target of an assignment binds, None where it is another one."""
        if isinstance(target, ast.Name):
            scope = self.tree.scope(at)
            while scope.parent is not None and target.id not in scope.bindings:
                scope = scope.parent  # a comprehension's walrus, a global
            return self._name(scope, target.id)
        return self._attribute(target) if isinstance(target, ast.Attribute) else None

    # -- variables -----------------------------------------------------------------------------------

    def _name(self, scope: Scope, name: str) -> Variable:
        key = (scope, name)
        if key not in self._variables:
            reads = list(self.facts.reads_in(scope, name))
            if isinstance(scope.node, ast.ClassDef):
                reads += self._attribute_reads(name, scope.node)
            elsewhere = name if scope.is_module else f"self.{name}" if scope.is_class else ""
            self._variables[key] = Variable(name, reads, scope.bindings.get(name, ()), elsewhere=elsewhere)
        return self._variables[key]

    def _attribute(self, node: ast.Attribute) -> Variable:
        """Return an attribute of the class around it, or of any object with such an attribute."""
        owner = self._class_of(node)
        path = dotted(node) or f".{node.attr}"
        key = (owner, path)
        if key not in self._variables:
            bindings = [
                binding
                for other in self.tree.paths_by_name.get(node.attr, ())
                for binding in self.tree.attributes[other]
                if owner is None or not other.startswith("self.") or self._may_be_of(owner, binding.node)
            ]
            reads = list(self._attribute_reads(node.attr, owner))
            elsewhere = f"self.{node.attr}" if owner is not None else f".{node.attr}"
            self._variables[key] = Variable(node.attr, reads, bindings, attribute=True, elsewhere=elsewhere)
        return self._variables[key]

    def _attribute_reads(self, name: str, owner: ast.ClassDef | None) -> Iterator[ast.expr]:
        """Yield the reads of an attribute: of `self` in its class and those related, and of other objects."""
        for node in self.tree.nodes_with_name(name):
            if not (isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load)):
                continue
            parent = self.tree.parents.get(node)
            if isinstance(parent, ast.Call) and parent.func is node:
                continue  # a method: the values that are followed can't be called
            if self.facts.resolve(node) is not None:
                continue
            other = self._class_of(node)
            if owner is None or other is None or self._related(owner, other):
                yield node

    def _class_of(self, node: ast.Attribute) -> ast.ClassDef | None:
        """Return the class whose attribute `self.x` is, None for an attribute of another object."""
        return self._owner(node) if dotted(node) == f"self.{node.attr}" else None

    def _may_be_of(self, owner: ast.ClassDef, node: ast.AST) -> bool:
        """Return whether what binds `self.x` may do so for objects of a class."""
        other = self._owner(node)
        return other is None or self._related(owner, other)

    def _owner(self, node: ast.AST) -> ast.ClassDef | None:
        parents = (parent for _, parent in self.tree.ancestors(node))
        return next((parent for parent in parents if isinstance(parent, ast.ClassDef)), None)

    def _related(self, one: ast.ClassDef, other: ast.ClassDef) -> bool:
        """Return whether an object may be of both classes, since they share an ancestor of this module."""
        return one is other or bool(self._family(one) & self._family(other))

    def _family(self, node: ast.ClassDef) -> set[str]:
        """Return the names of a class and of those of its ancestors that this module defines."""
        found: set[str] = set()
        todo = [node]
        while todo:
            each = todo.pop()
            if each.name in found:
                continue
            found.add(each.name)
            for base in each.bases:
                bindings = self.facts.bindings(base)
                todo += [binding.node for binding in bindings if isinstance(binding.node, ast.ClassDef)]
        return found

    # -- functions -----------------------------------------------------------------------------------

    def _parameters_for(self, node: ast.expr) -> Iterator[Variable]:
        """Yield the parameters and options that an expression is the value or the default of."""
        parent = self.tree.parents.get(node)
        match parent:
            case ast.Call(args=args) if node in args:
                yield from self._parameter(parent, args.index(node))
            case ast.keyword(arg=str(name)):
                call = self.tree.parents.get(parent)
                if isinstance(call, ast.Call):
                    yield from self._option(call, name)
                    yield from self._parameter(call, name)
            case ast.arguments():
                function = self.tree.parents[parent]
                for arg, default in with_defaults(parent):
                    if default is node:
                        yield from self._argument(function, arg)

    def _parameter(self, call: ast.Call, position: int | str) -> Iterator[Variable]:
        function = self._function(call.func)
        if function is None or any(isinstance(argument, ast.Starred) for argument in call.args):
            return
        arguments = function.args
        plain = [*arguments.posonlyargs, *arguments.args]
        if isinstance(self.tree.parents[function], ast.ClassDef) and not function.decorator_list:
            plain = plain[1:]  # self
        if isinstance(position, str):
            named = (arg for arg in (*plain, *arguments.kwonlyargs) if arg.arg == position)
            yield from (each for arg in named for each in self._argument(function, arg))
        elif position < len(plain):
            yield from self._argument(function, plain[position])

    def _argument(self, function: ast.AST, arg: ast.arg) -> Iterator[Variable]:
        scope = self.tree.scopes.get(function)
        if scope is None and isinstance(function, ast.Lambda):
            scope = self.tree.scope(function.body)
        if scope is not None:
            yield self._name(scope, arg.arg)

    def _option(self, call: ast.Call, keyword: str) -> Iterator[Variable]:
        """Yield the attribute that holds an option of the command line with this default."""
        if keyword == "default" and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            for name in option_names(call):
                yield Variable(name, list(self._attribute_reads(name, None)), (), attribute=True)

    def _function(self, called: ast.expr) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Return the function or method of this module that a call certainly reaches."""
        if isinstance(called, ast.Name):
            found = self.tree.scope(called).lookup(called.id)
            bindings = found[1] if found is not None else []
        elif isinstance(called, ast.Attribute) and dotted(called) == f"self.{called.attr}":
            owner = self._owner(called)
            scope = self.tree.scopes.get(owner) if owner is not None else None
            bindings = scope.bindings.get(called.attr, []) if scope is not None else []
        else:
            return None
        node = bindings[0].node if len(bindings) == 1 else None
        if isinstance(node, ast.ClassDef):
            scope = self.tree.scopes.get(node)
            created = scope.bindings.get("__init__", []) if scope is not None else []
            node = created[0].node if len(created) == 1 else None
        return node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None

    def _calls(self, function: ast.AST) -> Iterator[ast.expr]:
        """Yield the calls of a function or method in this module."""
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return
        for node in self.tree.nodes_with_name(function.name):
            if isinstance(node, ast.Call) and self._function(node.func) is function:
                yield node
