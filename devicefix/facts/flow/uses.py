"""Follow a value: through names, attributes, arguments and returns, to the expressions that use it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from devicefix.facts.flow.binding import Pair, bound_by
from devicefix.facts.flow.kinds.bindings import PROPERTIES
from devicefix.facts.flow.sinks import Place
from devicefix.facts.flow.steps import Steps, Variable
from devicefix.facts.module import Facts
from devicefix.facts.names import option_names
from devicefix.facts.values import last_name

_LIMIT = 500  # how many expressions to follow a value through

_BINDINGS = 20  # of a variable; its reads have other values, too
_KEEPS = ("SimpleNamespace", "Namespace", "replace", "_replace")  # what keeps its arguments as attributes


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


class Uses(Steps):
    """The uses of values in one module.

    Args:
        facts: the facts of the module.
        zero: whether the values are numbers that are 0 without CUDA, followed only as such: not where they
            are evaluated only with CUDA, not through `n or 1`, and not through the attributes of any object.
    """

    def __init__(self, facts: Facts, zero: bool = False) -> None:
        super().__init__(facts)
        self.zero = zero
        self._followed: dict[ast.expr, Followed] = {}

    def of(self, value: ast.expr) -> Followed:
        """Return where the value of an expression goes."""
        if value not in self._followed:
            self._followed[value] = self._follow(value)
        return self._followed[value]

    def is_followed(self, use: ast.expr) -> bool:
        """Return whether an argument or a returned value is followed beyond the call, in this module."""
        return any(self._parameters_for(use)) or any(self._passed_on(use))

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
                yield from self.calls_of(self.tree.scope(parent).node)

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
                fields = self.fields(parent.func)
                if args.index(node) < len(fields):
                    yield from self.attribute_reads(fields[args.index(node)])
            case ast.keyword(arg=str(name)):
                call = self.tree.parents.get(parent)
                if isinstance(call, ast.Call):
                    if name in self.fields(call.func) or last_name(call.func) in _KEEPS:
                        yield from self.attribute_reads(name)

    def _results_of(self, method: ast.FunctionDef, owner: ast.ClassDef) -> Iterator[ast.expr]:
        """Yield the reads of a property, or the calls of a method of any object."""
        if any(last_name(decorator) in PROPERTIES for decorator in method.decorator_list):
            yield from self.attribute_reads(method.name, owner)
            return
        for call in self.calls(method.name):
            if isinstance(call.func, ast.Attribute) and self.facts.resolve(call.func) is None:
                yield call

    def _is_use(self, node: ast.expr) -> bool:
        """Return whether an expression is more than a step on the way of its value."""
        parent = self.tree.parents.get(node)
        match parent:
            case ast.IfExp(test=test):
                return node is test
            case ast.BoolOp(values=values):
                return node is not values[-1]
            case ast.Assign(targets=targets):
                return any(self.bound(target, target) is None for target in targets)
            case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
                return self.bound(target, target) is None
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
            variable = self.bound(target, at) if value is node else None
            if variable is not None:
                yield variable

    def _unpacked(self, node: ast.expr) -> Iterator[Variable]:
        """Yield the variables that get a value which a function returns in a tuple: `a, b = f()`."""
        returned = self.tree.parents.get(node)
        if not isinstance(returned, ast.Tuple) or not isinstance(self.tree.parents.get(returned), ast.Return):
            return
        for call in self.calls_of(self.tree.scope(returned).node):
            match self.tree.parents.get(call):
                case ast.Assign(targets=[ast.Tuple(elts=targets)]) if len(targets) == len(returned.elts):
                    target = targets[returned.elts.index(node)]
                    starred = any(isinstance(each, ast.Starred) for each in (*targets, *returned.elts))
                    variable = None if starred else self.bound(target, target)
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
                yield self.name(*self.with_default(parent, node))

    def _parameter(self, call: ast.Call, place: Place) -> Iterator[Variable]:
        function = self.function(call.func)
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        found = None if function is None or starred else self.parameter(function, place)
        if found is not None and not found[2]:
            yield self.name(*found[:2])

    def _option(self, call: ast.Call, keyword: str) -> Iterator[Variable]:
        """Yield the attribute that holds an option of the command line with this default."""
        if keyword == "default" and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            for name in option_names(call):
                yield Variable(name, list(self.attribute_reads(name)), (), attribute=True)
