"""The scopes of a module, and what is bound in them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LOOPS = (ast.For, ast.AsyncFor, ast.comprehension)  # what binds a name to each element
LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)
PERHAPS = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.comprehension)  # may not evaluate what is in them


@dataclass(slots=True, eq=False)
class Binding:
    """One place where a name is bound.

    `value` is the expression that it is bound to, None where there is no single one (a loop variable,
    a parameter, part of an unpacked value). `imported` is the dotted name of what an import binds,
    `default` what a parameter is bound to when nothing is given.
    """

    node: ast.AST
    value: ast.expr | None = None
    imported: str | None = None
    parameter: bool = False
    default: ast.expr | None = None


@dataclass(slots=True, eq=False)
class Scope:
    """A module, class, function, lambda or comprehension."""

    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)  # declared global or nonlocal here
    of_module: set[str] = field(default_factory=set)  # those of them that are declared global

    @property
    def is_class(self) -> bool:
        """Return whether this is the scope of a class."""
        return isinstance(self.node, ast.ClassDef)

    @property
    def is_module(self) -> bool:
        """Return whether this is the scope of the module."""
        return self.parent is None

    def chain(self) -> Iterator[Scope]:
        """Return the scopes in which a name used here is looked up, inner to outer."""
        scope: Scope | None = self
        while scope is not None:
            if scope is self or not scope.is_class:
                yield scope
            scope = scope.parent

    def lookup(self, name: str) -> tuple[Scope, list[Binding]] | None:
        """Return the nearest scope that binds a name, and all places there that do."""
        declared_global = False
        for scope in self.chain():
            declared_global = declared_global or name in scope.of_module
            if declared_global and not scope.is_module:
                continue
            if name in scope.bindings and (scope.is_module or name not in scope.elsewhere):
                return scope, scope.bindings[name]
        return None

    @property
    def function(self) -> Scope | None:
        """The outermost function that this scope is part of."""
        functions = [scope for scope in self.chain() if isinstance(scope.node, Function)]
        return functions[-1] if functions else None


def dotted(node: ast.AST) -> str | None:
    """Return `a.b.c` for such an attribute chain or name, else None."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    names.append(node.id)
    return ".".join(reversed(names))


def with_defaults(arguments: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """Return the parameters of a function, each with its default."""
    plain = [*arguments.posonlyargs, *arguments.args]
    missing = len(plain) - len(arguments.defaults)
    yield from zip(plain, [*[None] * missing, *arguments.defaults], strict=True)
    yield from zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)


def captured(*cases: ast.match_case) -> Iterator[str]:
    """Yield the names that the patterns of a `match` statement bind to its subject, or to parts of it."""
    for pattern in (each for case in cases for each in ast.walk(case.pattern)):
        name = getattr(pattern, "rest" if isinstance(pattern, ast.MatchMapping) else "name", None)
        if name is not None:
            yield name


def bound_names(node: ast.AST) -> list[str]:
    """Return the names that a node binds in its scope, without what the nodes inside it bind."""
    match node:
        case ast.Name(ctx=ast.Store(), id=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [alias.asname or alias.name.partition(".")[0] for alias in names]
        case ast.Match():
            return list(captured(*node.cases))
    return []


class Bindings:
    """The names and dotted paths that a module binds.

    Args:
        root: the scope of the module.

    Attributes:
        attributes: the bindings of dotted paths such as `args.cuda` or `self.device`, by path.
        imports: the import statements.
        star_imports: the modules named in `from x import *`, with their leading dots.
        declared_elsewhere: the names in `global` and `nonlocal` statements.
    """

    def __init__(self, root: Scope) -> None:
        self.root = root
        self.attributes: dict[str, list[Binding]] = {}
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.star_imports: list[str] = []
        self.declared_elsewhere: set[str] = set()
        self._nonlocal: list[tuple[Scope, str, Binding]] = []

    def settle(self) -> None:
        """Add the bindings of `nonlocal` names to the functions around, which may bind them further below."""
        for scope, name, binding in self._nonlocal:
            found = scope.lookup(name)
            if found is not None and not found[0].is_module:
                found[1].append(binding)
        self._nonlocal.clear()

    def bind(self, node: ast.AST, scope: Scope) -> None:
        """Record what a node binds in its scope, without what the nodes inside it bind."""
        binder = _BINDERS.get(type(node))
        if binder is not None:
            binder(self, node, scope)

    def parameters(self, arguments: ast.arguments, scope: Scope) -> None:
        """Record the parameters of a function or lambda in its own scope."""
        for arg, default in with_defaults(arguments):
            self._add(scope, arg.arg, Binding(arg, parameter=True, default=default))
        for extra in (arguments.vararg, arguments.kwarg):
            if extra is not None:
                self._add(scope, extra.arg, Binding(extra, parameter=True))

    def _add(self, scope: Scope, name: str, binding: Binding) -> None:
        if name in scope.elsewhere and name not in scope.of_module:
            self._nonlocal.append((scope, name, binding))
        else:
            target = self.root if name in scope.elsewhere else scope
            target.bindings.setdefault(name, []).append(binding)

    def _target(self, target: ast.expr, node: ast.AST, value: ast.expr | None, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            self._add(scope, target.id, Binding(node, value))
        elif isinstance(target, ast.Attribute):
            path = dotted(target)
            if path is not None:
                self.attributes.setdefault(path, []).append(Binding(node, value))
        elif isinstance(target, ast.Starred):
            self._target(target.value, node, None, scope)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for element, its_value in zip(target.elts, _unpacked(target.elts, value), strict=True):
                self._target(element, node, its_value, scope)

    def _targets(self, node: ast.Assign | ast.Delete, scope: Scope) -> None:
        for target in node.targets:
            self._target(target, node, getattr(node, "value", None), scope)

    def _annotated(self, node: ast.AnnAssign, scope: Scope) -> None:
        self._target(node.target, node, node.value, scope)

    def _without_value(self, node: ast.AugAssign | ast.For | ast.AsyncFor, scope: Scope) -> None:
        self._target(node.target, node, None, scope)

    def _walrus(self, node: ast.NamedExpr, scope: Scope) -> None:
        while isinstance(scope.node, COMPREHENSIONS) and scope.parent is not None:
            scope = scope.parent
        self._target(node.target, node, node.value, scope)

    def _comprehension(self, node: ast.comprehension, scope: Scope) -> None:
        for target in ast.walk(node.target):
            if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store):
                self._add(scope, target.id, Binding(node))

    def _with(self, node: ast.With | ast.AsyncWith, scope: Scope) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self._target(item.optional_vars, item, None, scope)

    def _handler(self, node: ast.ExceptHandler, scope: Scope) -> None:
        if node.name:
            self._add(scope, node.name, Binding(node))

    def _definition(self, node: Function | ast.ClassDef, scope: Scope) -> None:
        """Record the name of a function or class, and its type parameters in the scope around it.

        They are visible only inside. That the scope around seems to bind them as well keeps new names from
        clashing with them, and makes what they annotate unknown.
        """
        self._add(scope, node.name, Binding(node))
        for parameter in getattr(node, "type_params", ()):  # since Python 3.12
            self._add(scope, parameter.name, Binding(parameter))

    def _alias(self, node: Any, scope: Scope) -> None:
        """Record the name of a `type` statement, and its type parameters."""
        for each in (node.name.id, *(parameter.name for parameter in node.type_params)):
            self._add(scope, each, Binding(node))

    def _declaration(self, node: ast.Global | ast.Nonlocal, scope: Scope) -> None:
        scope.elsewhere.update(node.names)
        if isinstance(node, ast.Global):
            scope.of_module.update(node.names)
        self.declared_elsewhere.update(node.names)

    def _import(self, node: ast.Import, scope: Scope) -> None:
        self.imports.append(node)
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self._add(scope, name, Binding(node, imported=alias.name if alias.asname else name))

    def _import_from(self, node: ast.ImportFrom, scope: Scope) -> None:
        self.imports.append(node)
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.star_imports.append(module)
                continue
            joint = "" if module.endswith(".") else "."
            name = alias.asname or alias.name
            self._add(scope, name, Binding(node, imported=f"{module}{joint}{alias.name}"))

    def _match(self, node: ast.Match, scope: Scope) -> None:
        for case in node.cases:
            self._capture(case.pattern, node.subject, scope)

    def _capture(self, pattern: ast.pattern, value: ast.expr | None, scope: Scope) -> None:
        """Record the names that a pattern binds; `value` is what it is matched with, where that is known."""
        match pattern:
            case ast.MatchAs(name=str(name)):
                self._add(scope, name, Binding(pattern, value))
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                self._add(scope, name, Binding(pattern))
        parts = [each for each in ast.iter_child_nodes(pattern) if isinstance(each, ast.pattern)]
        values: list[ast.expr | None] = [None] * len(parts)
        if isinstance(pattern, (ast.MatchAs, ast.MatchOr)):
            values = [value] * len(parts)
        elif isinstance(pattern, ast.MatchSequence):
            values = _unpacked(parts, value)
        for part, its_value in zip(parts, values, strict=True):
            self._capture(part, its_value, scope)


def _unpacked(targets: Sequence[ast.AST], value: ast.expr | None) -> list[ast.expr | None]:
    """Return the value of each element of a target or pattern, None for those that are not known."""
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(targets):
        if not any(isinstance(element, (ast.Starred, ast.MatchStar)) for element in (*targets, *value.elts)):
            return list(value.elts)
    return [None] * len(targets)


_BINDERS: dict[type[ast.AST], Callable[[Bindings, Any, Scope], None]] = {
    ast.Assign: Bindings._targets,
    ast.AnnAssign: Bindings._annotated,
    ast.AugAssign: Bindings._without_value,
    ast.NamedExpr: Bindings._walrus,
    ast.For: Bindings._without_value,
    ast.AsyncFor: Bindings._without_value,
    ast.comprehension: Bindings._comprehension,
    ast.With: Bindings._with,
    ast.AsyncWith: Bindings._with,
    ast.ExceptHandler: Bindings._handler,
    ast.FunctionDef: Bindings._definition,
    ast.AsyncFunctionDef: Bindings._definition,
    ast.ClassDef: Bindings._definition,
    ast.Global: Bindings._declaration,
    ast.Nonlocal: Bindings._declaration,
    ast.Import: Bindings._import,
    ast.ImportFrom: Bindings._import_from,
    ast.Match: Bindings._match,
    ast.Delete: Bindings._targets,
}
if sys.version_info >= (3, 12):
    _BINDERS[ast.TypeAlias] = Bindings._alias


def is_main(node: ast.AST) -> bool:
    """Return whether a statement is `if __name__ == "__main__":`."""
    parts = ast.walk(node.test) if isinstance(node, ast.If) else ()
    return any(isinstance(each, ast.Name) and each.id == "__name__" for each in parts)
