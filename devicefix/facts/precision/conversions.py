"""Find the statements that convert modules of torch in place, such as `net.half()`, and whether they run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from devicefix.facts.module import Facts
from devicefix.facts.precision.dtypes import Dtypes, is_conversion
from devicefix.facts.precision.values import Module, Value, converted
from devicefix.facts.scopes import Scope, dotted
from devicefix.facts.tree import Tree

_VISITS = ("modules", "named_modules", "children", "named_children", "apply", "_apply", "parameters")
Attribute = Callable[["Value | None", str], "Value | None"]  # returns an attribute of a value


class Conversions:
    """The statements of a module that convert modules of torch in place.

    Args:
        facts: The module's names.
        dtypes: The types that it names.
        attribute: Returns an attribute of a value.
    """

    def __init__(self, facts: Facts, dtypes: Dtypes, attribute: Attribute) -> None:
        self._tree = facts.tree
        self._dtypes = dtypes
        self._attribute = attribute

    def of_name(self, value: Value | None, name: str, site: ast.Name) -> Value | None:
        """Return the value of a name after the statements that convert it or a part of it."""
        if not isinstance(value, Module) or name == "self":
            return value
        if not all(map(self._is_harmless, self._visits.get(name, ()))):
            value = replace(value, dtype=None)
        found = self._tree.scope(site).lookup(name)
        scope = found[0] if found is not None else None
        for path, call in self._conversions.get((None, name), ()):
            if self._binds(call, name, scope):
                is_before = self._tree.scope(call) is scope and self._always_before(call, site)
                value = self._after(value, path[1:], call, is_before)
        return value

    def of_attribute(self, value: Value | None, owner: ast.ClassDef, path: str) -> Value | None:
        """Return a module that is an attribute after what its class converts in place."""
        whole = self._conversions.get((owner, "self"), ())
        for names, call in (*whole, *self._conversions.get((owner, path), ())):
            function = self._tree.scope(call).node
            is_run = isinstance(function, ast.FunctionDef) and self._is_run(function.name)
            is_known = is_run and len(names) > 1 and self._is_unconditional(self._tree.statement(call))
            value = self._after(value, names[2:], call, is_known)
        return value

    def _after(
        self, value: Value | None, path: Sequence[str], call: ast.Call, is_known: bool
    ) -> Value | None:
        """Return a module after a conversion of a part of it, of an unknown type if it may not be run."""
        if not isinstance(value, Module):
            return value
        if path:
            part = self._after(self._attribute(value, path[0]), path[1:], call, is_known)
            others = tuple(each for each in value.keys if each[0] != path[0])
            return replace(value, keys=(*others, (path[0], part)))
        assert isinstance(call.func, ast.Attribute)
        dtype = self._dtypes.target(call, call.func.attr)
        return value if dtype == "" else converted(value, dtype if is_known else None)

    @cached_property
    def _visits(self) -> Mapping[str, list[ast.AST | None]]:
        """The calls that visit the parts of a module, by its name: `net.modules()`."""
        found: dict[str, list[ast.AST | None]] = {}
        for node in self._tree.nodes_with(*(f".{method}" for method in _VISITS)):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=method) if method in _VISITS:
                    found.setdefault(name, []).append(self._tree.parents.get(node))
        return found

    def _is_harmless(self, call: ast.AST | None) -> bool:
        """Return whether the parts of a module are only passed to an optimizer, or counted."""
        parent = self._tree.parents.get(call)
        if isinstance(parent, (ast.For, ast.AsyncFor)):
            return not any(is_conversion(each) for part in parent.body for each in ast.walk(part))
        return not (isinstance(call, ast.Call) and call.args)  # `net.apply(f)`

    def _binds(self, node: ast.AST, name: str, scope: Scope | None) -> bool:
        """Return whether a name has the same meaning at a node as in a scope."""
        found = self._tree.scope(node).lookup(name)
        return found is not None and found[0] is scope

    def _always_before(self, call: ast.Call, site: ast.AST) -> bool:
        """Return whether a statement of the function or module has run when a place is reached."""
        if self._tree.scope(call) is not self._tree.scope(site):
            return self._tree.scope(call).is_module
        statement = self._tree.statement(call)
        return statement.lineno < getattr(site, "lineno", 0) and self._is_unconditional(statement)

    def _is_unconditional(self, statement: ast.stmt) -> bool:
        parent = self._tree.parents.get(statement)
        return isinstance(parent, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef))

    def _is_run(self, method: str) -> bool:
        """Return whether the module runs a method of its objects: `net.init_weights()`."""
        return method == "__init__" or method in self._run_methods

    @cached_property
    def _run_methods(self) -> frozenset[str]:
        """The names of the methods that the module runs in any case, in statements of their own."""
        return frozenset(
            statement.value.func.attr
            for statement in self._tree.of_kind(ast.Expr)
            if isinstance(statement.value, ast.Call)
            and isinstance(statement.value.func, ast.Attribute)
            and self._is_unconditional(statement)
        )

    @cached_property
    def _conversions(self) -> Mapping[tuple[ast.ClassDef | None, str], list[tuple[list[str], ast.Call]]]:
        """The statements that convert a module in place, each with the parts of its path.

        They are found by the name of the module, or by the class and `self.x` for one of `self.x.y`.
        """
        found: dict[tuple[ast.ClassDef | None, str], list[tuple[list[str], ast.Call]]] = {}
        for node in self._tree.nodes_with(".to(", ".half(", ".bfloat16(", ".float(", ".double("):
            match node:
                case ast.Call(func=ast.Attribute(value=module)) if is_conversion(node):
                    path = dotted(module)
                    if path is not None and isinstance(self._tree.parents.get(node), ast.Expr):
                        names = path.split(".")
                        of_self = names[0] == "self"
                        key = (
                            class_around(self._tree, node) if of_self else None,
                            ".".join(names[: 1 + of_self]),
                        )
                        found.setdefault(key, []).append((names, node))
        return found


def class_around(tree: Tree, node: ast.AST) -> ast.ClassDef | None:
    """Return the class that a node is in."""
    parents = (parent for _, parent in tree.ancestors(node))
    return next((parent for parent in parents if isinstance(parent, ast.ClassDef)), None)
