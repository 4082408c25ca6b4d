"""Follow the statements of a module, function or class up to a goal, such as a name that is bound."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from devicefix.facts.bound.evaluation import name_of, reads
from devicefix.facts.bound.mentions import EVERYTHING, Mentions
from devicefix.facts.flow.order import Flow
from devicefix.facts.flow.points import Point
from devicefix.facts.names import Names
from devicefix.facts.scopes import DEFINITIONS, Binding, Function, Scope, bound_names

_EXITS = {"sys.exit", "os._exit"}


@dataclass(frozen=True, slots=True)
class Read:
    """The goal that a name has been read.

    Attributes:
        name: The name.
    """

    name: str


Goal: TypeAlias = str | ast.stmt | Read


class Run:
    """A run of code up to a goal: a name is bound or read, or a statement has run.

    Args:
        facts: The module's names.
        mentions: What the module's statements read, and whether other files may call it at any time.
        flow: The order of the statements of the module, function or class in whose own code the goal is.
        goal: The goal: a name that is bound, one that is read, or a statement.

    Attributes:
        first: Whether the goal is reached where the code begins.
    """

    def __init__(self, facts: Names, mentions: Mentions, flow: Flow, goal: Goal) -> None:
        self._facts = facts
        self._mentions = mentions
        self._flow = flow
        self._goal = goal
        scope = facts.tree.scopes[flow.owner]
        bindings = scope.bindings.get(goal, []) if isinstance(goal, str) else []
        self._unbinders = [binding.node for binding in bindings if unbinds(binding)]
        # A function that may run at any time unbinds a nonlocal or global name again.
        self._never = any(self._unit(node)[1] is not None for node in self._unbinders)
        self.first = not self._never and any(binding.parameter for binding in bindings)
        self._open = self._before_goal()
        self._units = _units(scope)
        self._early = self._may_run_early()

    def reaches(self, site: ast.AST) -> bool:
        """Return whether the goal is reached whenever a node is, which is inside the owner."""
        name, unit = self._unit(site)
        if unit is not None and self._unbinders:
            return False
        if self._is_before(self._facts.tree.statement(site if unit is None else unit)):
            return True
        if name is None or name in self._early or self._never:
            return False
        return not (isinstance(self._flow.owner, ast.Module) and self._mentions.is_circular())

    def after(self, statement: ast.stmt) -> bool:
        """Return whether the goal is reached after a statement of the owner's body."""
        points = self._flow.by_node.get(statement, ())
        last = self._flow.ends.get(statement, points[-1] if len(points) == 1 else None)
        if last is None or isinstance(statement, (ast.Return, ast.Raise)):
            return not self._never  # nothing runs there
        return not self._never and (last not in self._open or self._is_goal(last))

    def _is_before(self, statement: ast.stmt) -> bool:
        """Return whether the goal is reached before a statement; the body of a class runs with it."""
        node: ast.AST = statement
        while node not in self._flow.by_node:
            node = self._facts.tree.parents[node]
        points = {*self._flow.by_node[node]} - {self._flow.ends.get(node)}
        return not self._never and self._open.isdisjoint(points)

    def _before_goal(self) -> set[Point]:
        """Return the points that may run while the goal is not reached."""
        start = [] if self.first else [self._flow.entry]
        for point in self._flow.points:
            deleted = isinstance(point.node, ast.Delete) and point.node in self._unbinders
            if deleted or (point.unbinds and point.unbinds == self._goal):
                start.append(point)
        return set(
            self._flow.reachable(start, lambda point: self._is_goal(point) or self._ends_program(point.node))
        )

    def _is_goal(self, point: Point) -> bool:
        """Return whether the goal is reached behind a point."""
        node = point.node
        if isinstance(self._goal, Read):
            return isinstance(node, ast.stmt) and any(reads(node, self._goal.name))
        if isinstance(self._goal, str):
            return self._binds(point)
        return node is self._goal and point is self._flow.ends.get(self._goal, point)

    def _binds(self, point: Point) -> bool:
        """Return whether a point certainly binds the name."""
        if isinstance(point.node, (ast.Import, ast.ImportFrom, *DEFINITIONS)):
            return self._goal in bound_names(point.node)
        match point.node:
            case ast.Delete():
                return False
            case ast.ExceptHandler(name=name):
                return name == self._goal and not point.unbinds
        return any(map(self._is_target, point.binds))

    def _is_target(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name == self._goal
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return any(map(self._is_target, parts))
        return False

    def _ends_program(self, node: ast.AST) -> bool:
        match node:
            case ast.Expr(value=ast.Call(func=ast.Name(id="exit" | "quit" as name) as function)):
                return self._facts.tree.scope(function).lookup(name) is None
            case ast.Expr(value=ast.Call(func=function)):
                return self._facts.resolve(function) in _EXITS
        return False

    # -- functions ------------------------------------------------------------------------------------

    def _unit(self, site: ast.AST) -> tuple[str | None, ast.AST | None]:
        """Return the outermost function or class around a site that may run it later, and its name.

        Both are None in the owner's own code; a lambda may have no name.
        """
        name: str | None = None
        unit: ast.AST | None = None
        scope: Scope | None = self._facts.tree.scope(site)
        while scope is not None and scope.node is not self._flow.owner:
            node = scope.node
            if isinstance(node, ast.Lambda):
                name, unit = name_of(self._facts.tree.parents.get(node), node), node
            elif isinstance(node, Function) or (isinstance(node, ast.ClassDef) and name is not None):
                name, unit = node.name, node
            scope = scope.parent
        return name, unit

    def _may_run_early(self) -> set[str]:
        """Return the functions and classes of the owner that may run before the goal is reached."""
        early: set[str] = set()
        if isinstance(self._flow.owner, ast.Module) and self._flow.exit in self._open:
            early.update(self._units)
        for point in self._open:
            if isinstance(point.node, ast.ClassDef):
                early |= self._mentioned_in(point.node)
            if isinstance(point.node, ast.stmt):
                early |= self._called(self._mentions.of_statement(point.node))
        todo = list(early)
        while todo:
            for node in self._units.get(todo.pop(), ()):
                if not self._is_before(self._facts.tree.statement(node)):  # else it is defined later
                    more = self._called(self._mentions.of_definition(node)) - early
                    todo += more
                    early |= more
        return early

    def _called(self, names: frozenset[str]) -> set[str]:
        """Return the functions and classes of the owner that code may call which reads some names."""
        return set(self._units if not names.isdisjoint(EVERYTHING) else names & self._units.keys())

    def _mentioned_in(self, definition: ast.ClassDef) -> set[str]:
        """Return what the body of a class may call; the class itself for a method of it, perhaps."""
        found: set[str] = set()
        for statement in _statements(definition):
            names = self._mentions.of_statement(statement)
            found |= self._called(names)
            chain = self._facts.tree.scope(statement).chain()
            if any(not names.isdisjoint(scope.bindings) for scope in chain if scope.is_class):
                found.add(definition.name)
        return found


def _statements(definition: ast.ClassDef) -> Iterator[ast.stmt]:
    """Yield the statements in the body of a class, without those of functions."""
    todo: list[ast.AST] = [*definition.body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, (Function, ast.expr)):
            todo += ast.iter_child_nodes(node)


def _units(scope: Scope) -> dict[str, list[ast.AST]]:
    """Return the functions, classes and named lambdas of an owner's own code, by name."""
    found: dict[str, list[ast.AST]] = {}
    for name, bindings in scope.bindings.items():
        for binding in bindings:
            if isinstance(binding.node, DEFINITIONS):
                found.setdefault(name, []).append(binding.node)
            elif isinstance(binding.value, ast.Lambda) and name_of(binding.node, binding.value) == name:
                found.setdefault(name, []).append(binding.value)
    return found


def unbinds(binding: Binding) -> bool:
    """Check whether a binding takes the name away again."""
    return isinstance(binding.node, (ast.Delete, ast.ExceptHandler))
