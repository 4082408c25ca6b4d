"""The devices that a module has already: the names bound to one, and where they can be used."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property

from devicefix.facts import Binding, Facts, Scope
from devicefix.facts.values import cpu, cuda_string, current_device, device_name

_NEVER = 1 << 30  # behind the last line of any module


class KnownDevices:
    """The names that are bound to the current device, or to the CPU where there is none.

    Args:
        facts: The module's facts.
        star_names: The names that star imports bind, each with whether it is such a device.
    """

    def __init__(self, facts: Facts, star_names: Mapping[str, bool]) -> None:
        self.star_names = star_names
        self._facts = facts
        self._named: dict[Scope, list[str]] = {}
        self._preferred: dict[Scope, list[str]] = {}

    def current(self, site: ast.AST) -> str | None:
        """Return the name of such a device that a site can use, `device` before any other."""
        scope = self._facts.tree.scope(site)
        for outer in scope.chain():
            for name in self._by_preference(outer):
                if self._is_visible(name, outer, site):
                    return name
        imported = (name for name, is_device in self.star_names.items() if is_device)
        return next((name for name in imported if scope.lookup(name) is None), None)

    def named(self, scope: Scope) -> list[str]:
        """Return the names of a scope all of whose bindings are the current device, or the CPU."""
        if scope not in self._named:
            self._named[scope] = [name for name in tuple(scope.bindings) if self._is_device(name, scope)]
        return self._named[scope]

    def chosen_by_flag(self, site: ast.AST) -> Iterator[tuple[str, str]]:
        """Yield the devices that a site can use and a flag chooses: the name, and the code of the flag."""
        for scope in self._facts.tree.scope(site).chain():
            for name in self.named(scope):
                value = scope.bindings[name][0].value
                if isinstance(value, ast.Call) and value.args:
                    value = value.args[0]
                if isinstance(value, ast.IfExp) and self._is_visible(name, scope, site):
                    yield name, ast.unparse(value.test)

    def precedes(self, statement: ast.stmt, site: ast.AST) -> bool:
        """Return whether a statement always runs before a site: it is above it, in a block around it."""
        last = self._facts.tree.block(statement)[-1]
        reached = self._facts.tree.statement(site)
        return _end(statement) <= (reached.lineno, reached.col_offset) < _end(last)

    @cached_property
    def first_local_call(self) -> int:
        """The line on which the module first uses one of its own functions or classes during import."""
        body = self._facts.tree.module.body
        definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        local = {
            definition.name for definition in body if isinstance(definition, (ast.FunctionDef, ast.ClassDef))
        }
        for statement in body:
            if not isinstance(statement, definitions):
                if any(isinstance(node, ast.Name) and node.id in local for node in ast.walk(statement)):
                    return statement.lineno
        return _NEVER

    def _by_preference(self, scope: Scope) -> list[str]:
        if scope not in self._preferred:
            self._preferred[scope] = sorted(self.named(scope), key=lambda name: name.lower() != "device")
        return self._preferred[scope]

    def _is_device(self, name: str, scope: Scope) -> bool:
        """Return whether all bindings of a name are the current device, or the CPU."""
        bindings = scope.bindings[name]
        values = [binding.value for binding in bindings]
        if any(value is None for value in values):
            return False
        if any(value and cuda_string(value) for value in values) and not device_name(name):
            return False  # a string that may never become a device
        if len(values) == 1:
            return current_device(self._facts, values[0])
        return len(values) == 2 and self._if_statement(bindings) is not None

    def _if_statement(self, bindings: list[Binding]) -> ast.If | None:
        """Return the `if` statement whose two branches bind a name to the current device and to the CPU."""
        tree = self._facts.tree
        parents = {tree.parents.get(binding.node) for binding in bindings}
        parent = parents.pop()
        if parents or not isinstance(parent, ast.If):
            return None
        blocks = [tree.block(binding.node) for binding in bindings if isinstance(binding.node, ast.stmt)]
        if not all(any(block is branch for block in blocks) for branch in (parent.body, parent.orelse)):
            return None
        kinds = {self._kind(binding.value) for binding in bindings if binding.value is not None}
        return parent if kinds == {"cpu", "cuda"} else None

    def _kind(self, value: ast.expr) -> str:
        if cpu(self._facts, value):
            return "cpu"
        return "cuda" if current_device(self._facts, value) else ""

    def _is_visible(self, name: str, scope: Scope, site: ast.AST) -> bool:
        """Return whether a name of a scope is bound when a site is reached, and means the same there."""
        tree = self._facts.tree
        found = tree.scope(site).lookup(name)
        if found is None or found[0] is not scope or name in tree.declared_elsewhere:
            return False
        bindings = found[1]
        node = bindings[0].node if len(bindings) == 1 else self._if_statement(bindings)
        if not isinstance(node, ast.stmt):
            return False
        if scope is tree.scope(site) or scope.is_class:
            return self.precedes(node, site)
        if scope.is_module:
            if tree.parents.get(node) is not tree.module:
                return False
            return self.precedes(node, site) or node.lineno < self.first_local_call
        return node.lineno < tree.statement(site).lineno and tree.parents.get(node) is scope.node


def _end(statement: ast.stmt) -> tuple[int, int]:
    return statement.end_lineno or 0, statement.end_col_offset or 0
