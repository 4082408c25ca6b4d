"""The devices that a module has already: names bound to one, and where they can be used."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property

from devicefix.facts import Binding, Facts, Scope
from devicefix.facts.values import cpu, cuda_string, current_device, device_name


class BoundDevices:
    """Names that are the current device where there is one, and the CPU where there is none.

    Args:
        facts: the module's facts.
        star_names: the names that star imports bring, true for those that are such a device.
    """

    def __init__(self, facts: Facts, star_names: Mapping[str, bool]) -> None:
        self.facts = facts
        self.star_names = star_names
        self._named: dict[Scope, list[str]] = {}
        self._sorted: dict[Scope, list[str]] = {}

    def current(self, site: ast.AST) -> str | None:
        """The name of such a device that can be used at a place, `device` before any other."""
        scope = self.facts.tree.scope(site)
        for outer in scope.chain():
            found = next((name for name in self._preferred(outer) if self._visible(name, outer, site)), None)
            if found is not None:
                return found
        for name, is_device in self.star_names.items():
            if is_device and self.facts.tree.scope(site).lookup(name) is None:
                return name
        return None

    def named(self, scope: Scope) -> list[str]:
        """The names of a scope that are the current device, or the CPU, whenever they are bound."""
        if scope not in self._named:
            self._named[scope] = list(self._find(scope))
        return self._named[scope]

    def _preferred(self, scope: Scope) -> list[str]:
        if scope not in self._sorted:
            self._sorted[scope] = sorted(self.named(scope), key=lambda name: name.lower() != "device")
        return self._sorted[scope]

    def _find(self, scope: Scope) -> Iterator[str]:
        for name, bindings in tuple(scope.bindings.items()):
            values = [binding.value for binding in bindings]
            if any(value is None for value in values):
                continue
            if any(value and cuda_string(value) for value in values) and not device_name(name):
                continue  # a string that may never become a device
            if (len(values) == 1 and current_device(self.facts, values[0])) or (
                len(values) == 2 and self._arms(bindings) is not None
            ):
                yield name

    def _arms(self, bindings: list[Binding]) -> ast.If | None:
        """The `if` statement whose two arms set a name to the current device and to the CPU."""
        parents = {self.facts.tree.parents.get(binding.node) for binding in bindings}
        parent = parents.pop()
        if parents or not isinstance(parent, ast.If):
            return None
        blocks = [self.facts.tree.block(each.node) for each in bindings if isinstance(each.node, ast.stmt)]
        if not all(any(each is arm for each in blocks) for arm in (parent.body, parent.orelse)):
            return None
        values = [binding.value for binding in bindings if binding.value is not None]
        kinds = {
            ("cpu" if cpu(self.facts, v) else "cuda" if current_device(self.facts, v) else "") for v in values
        }
        return parent if kinds == {"cpu", "cuda"} else None

    def _visible(self, name: str, scope: Scope, site: ast.AST) -> bool:
        """Whether a name of `scope` is bound when the site is reached, and means the same there."""
        tree = self.facts.tree
        found = tree.scope(site).lookup(name)
        if found is None or found[0] is not scope or name in tree.declared_elsewhere:
            return False
        bindings = found[1]
        node = bindings[0].node if len(bindings) == 1 else self._arms(bindings)
        if not isinstance(node, ast.stmt):
            return False
        if scope is tree.scope(site) or scope.is_class:
            return self.precedes(node, site)
        if scope.is_module:
            if tree.parents.get(node) is not tree.module:
                return False
            return self.precedes(node, site) or node.lineno < self.first_local_call
        return node.lineno < tree.statement(site).lineno and tree.parents.get(node) is scope.node

    def precedes(self, statement: ast.stmt, site: ast.AST) -> bool:
        """Whether a statement has always run when the site is reached: earlier, in a block around it."""
        last = self.facts.tree.block(statement)[-1]
        reached = self.facts.tree.statement(site)
        return _end(statement) <= (reached.lineno, reached.col_offset) < _end(last)

    @cached_property
    def first_local_call(self) -> int:
        """The line at which the module first calls something of its own while it is imported."""
        tree = self.facts.tree
        own = {each.name for each in tree.module.body if isinstance(each, (ast.FunctionDef, ast.ClassDef))}
        for statement in tree.module.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and node.id in own:
                    return statement.lineno
        return 1 << 30

    def chosen_by_flag(self, site: ast.AST) -> Iterator[tuple[str, str]]:
        """The devices that can be used at a place, each with the test that chooses it."""
        for scope in self.facts.tree.scope(site).chain():
            for name in self.named(scope):
                value = scope.bindings[name][0].value
                if isinstance(value, ast.Call) and value.args:
                    value = value.args[0]
                if isinstance(value, ast.IfExp) and self._visible(name, scope, site):
                    yield name, ast.unparse(value.test)


def _end(statement: ast.stmt) -> tuple[int, int]:
    return statement.end_lineno or 0, statement.end_col_offset or 0
