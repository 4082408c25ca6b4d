"""Prove that a name is bound, or that a statement has run, whenever a place is reached."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Collection
from functools import cached_property

from devicefix.facts.bound.evaluation import reads
from devicefix.facts.bound.mentions import Mentions
from devicefix.facts.bound.run import Goal, Read, Run, unbinds
from devicefix.facts.flow.order import Body, Flow
from devicefix.facts.names import Names
from devicefix.facts.scopes import COMPREHENSIONS, Function

# What every module has besides the builtins.
_OF_MODULES = {"__file__", "__name__", "__doc__", "__package__", "__spec__", "__loader__"}


class Bound:
    """Proofs of what is bound, and of what has run, at the places of a module.

    Args:
        facts: The module's names.
        inserted: The reads of names that a fix has inserted, which prove nothing of these names.
        is_circular: Whether the module is in a circle of imports.
    """

    def __init__(
        self,
        facts: Names,
        inserted: Collection[ast.AST] = (),
        is_circular: Callable[[], bool] = lambda: False,
    ) -> None:
        self._facts = facts
        self._inserted = inserted
        self._runs: dict[tuple[Body, Goal], Run] = {}
        self._flows: dict[Body, Flow] = {}
        self._mentions = Mentions(facts, is_circular)

    def name(self, name: str, site: ast.AST) -> bool:
        """Return whether a name is bound whenever a node is reached, a builtin included."""
        return self._is_bound(name, site) or self._was_read(name, site)

    def name_after(self, name: str, statement: ast.stmt | None, owner: Function | None = None) -> bool:
        """Return whether a name is bound at a new line.

        Args:
            name: The name.
            statement: The statement of the owner's body that the line follows; None for the first line.
            owner: The function that gets the line; None for the module.
        """
        tree = self._facts.tree
        if owner is not None and name not in tree.scopes[owner].bindings:
            first = owner.body[0]
            if statement is None or self._is_unbound(name, first):
                return self._is_bound(name, first)
            return self._is_bound(name, first) or self._run(owner, Read(name)).after(statement)
        goals: list[Goal] = [name]
        if owner is None and name not in tree.root.bindings:
            if _is_builtin(name):
                return True
            goals = [*self._stars]
        runs = [self._run(owner or tree.module, goal) for goal in goals]
        reached = (run.first if statement is None else run.after(statement) for run in runs)
        return bool(goals) and all(reached)

    def ran(self, statement: ast.stmt | None, site: ast.AST, owner: Function | None = None) -> bool:
        """Return whether a statement has run whenever a node is reached.

        Args:
            statement: The statement, of the owner's body; None for the beginning of it.
            site: The node.
            owner: The function that holds both; None for the module.
        """
        if statement is None:
            return True
        return self._run(owner or self._facts.tree.module, statement).reaches(site)

    def _is_bound(self, name: str, site: ast.AST) -> bool:
        found = self._facts.tree.scope(site).lookup(name)
        if found is None:
            stars = self._stars  # which of them binds a name is not known here
            return _is_builtin(name) or (bool(stars) and all(self.ran(star, site) for star in stars))
        scope, bindings = found
        if isinstance(scope.node, COMPREHENSIONS):
            return True
        if isinstance(scope.node, ast.Lambda):
            return any(binding.parameter for binding in bindings)
        assert isinstance(scope.node, Body)
        return self._run(scope.node, name).reaches(site)

    def _is_unbound(self, name: str, site: ast.AST) -> bool:
        """Return whether something unbinds a name again, or nothing binds it."""
        found = self._facts.tree.scope(site).lookup(name)
        return found is None or any(map(unbinds, found[1]))

    def _was_read(self, name: str, site: ast.AST) -> bool:
        """Return whether the function around a node has always read a name before, so that it is bound."""
        if self._is_unbound(name, site):
            return False
        statement = self._facts.tree.statement(site)
        if any(read not in self._inserted for read in reads(statement, name)):
            return True
        scope = next(each for each in self._facts.tree.scope(statement).chain() if not each.is_class)
        if not isinstance(scope.node, Function):
            return False
        return self._run(scope.node, Read(name)).reaches(statement)

    @cached_property
    def _stars(self) -> list[ast.stmt]:
        """The star imports."""
        return [node for node in self._facts.tree.imports if node.names[0].name == "*"]

    def _run(self, owner: Body, goal: Goal) -> Run:
        key = owner, goal
        if key not in self._runs:
            if owner not in self._flows:
                self._flows[owner] = Flow(owner, self._mentions.acts)
            self._runs[key] = Run(self._facts, self._mentions, self._flows[owner], goal)
        return self._runs[key]


def _is_builtin(name: str) -> bool:
    return hasattr(builtins, name) or name in _OF_MODULES
