"""Follow the statements of a module, function or class up to a goal, such as a name that is bound."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from devicefix.facts.bound.evaluation import (
    DEFINITIONS,
    Function,
    is_true,
    name_of,
    reads,
)
from devicefix.facts.bound.mentions import EVERYTHING, Mentions
from devicefix.facts.names import Names
from devicefix.facts.refusals import TRIES
from devicefix.facts.scopes import Binding, Scope

Owner = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef

_EXITS = {"sys.exit", "os._exit"}


@dataclass(frozen=True, slots=True)
class Read:
    """The goal that a name has been read.

    Attributes:
        name: The name.
    """

    name: str


Goal = str | ast.stmt | Read


class Run:
    """A run of code up to a goal: a name is bound or read, or a statement has run.

    Args:
        facts: The module's names.
        mentions: What the module's statements read, and whether other files may call it at any time.
        owner: The module, function or class in whose own code the goal is.
        goal: The goal: a name that is bound, one that is read, or a statement.

    Attributes:
        first: Whether the goal is reached where the owner begins.
        after: Whether it is reached after a statement of the owner's code.
    """

    def __init__(self, facts: Names, mentions: Mentions, owner: Owner, goal: Goal) -> None:
        self._facts = facts
        self._mentions = mentions
        self._owner = owner
        self._goal = goal
        scope = facts.tree.scopes[owner]
        bindings = scope.bindings.get(goal, []) if isinstance(goal, str) else []
        self.first = any(binding.parameter for binding in bindings)
        self.after: dict[ast.stmt, bool] = {}
        self._before: dict[ast.stmt, bool] = {}
        self._unbinders = [binding.node for binding in bindings if unbinds(binding)]
        self._breaks: list[list[bool]] = []
        self._classes: list[ast.ClassDef] = []
        self._units = _units(facts, owner)
        self._early: set[str] = set()  # what may run before the goal is reached
        end = self._block(owner.body, self.first) if isinstance(owner.body, list) else self.first
        if isinstance(owner, ast.Module) and not end:
            self._early.update(self._units)
        self._spread()
        # A function that may run at any time unbinds a nonlocal or global name again.
        if any(self._unit(node)[1] is not None for node in self._unbinders):
            self.first, self.after, self._before = False, {}, {}

    def reaches(self, site: ast.AST) -> bool:
        """Return whether the goal is reached whenever a node is, which is inside the owner."""
        name, unit = self._unit(site)
        if unit is not None and self._unbinders:
            return False
        if self._before.get(self._facts.tree.statement(site if unit is None else unit), False):
            return True
        if name is None or name in self._early:
            return False
        return not (isinstance(self._owner, ast.Module) and self._mentions.is_circular())

    # -- functions ------------------------------------------------------------------------------------

    def _unit(self, site: ast.AST) -> tuple[str | None, ast.AST | None]:
        """Return the outermost function or class around a site that may run it later, and its name.

        Both are None in the owner's own code; a lambda may have no name.
        """
        name: str | None = None
        unit: ast.AST | None = None
        scope: Scope | None = self._facts.tree.scope(site)
        while scope is not None and scope.node is not self._owner:
            node = scope.node
            if isinstance(node, ast.Lambda):
                name, unit = name_of(self._facts.tree.parents.get(node), node), node
            elif isinstance(node, Function) or (isinstance(node, ast.ClassDef) and name is not None):
                name, unit = node.name, node
            scope = scope.parent
        return name, unit

    def _mention(self, names: frozenset[str]) -> None:
        """Record what a statement mentions that runs before the goal is reached."""
        if not names.isdisjoint(EVERYTHING):
            self._early.update(self._units)
        self._early.update(names & self._units.keys())
        for outer in self._classes:
            if not names.isdisjoint(self._facts.tree.scopes[outer].bindings):  # a method, perhaps
                self._early.add(self._classes[0].name)

    def _spread(self) -> None:
        """Add what the functions that may run before the goal mention."""
        todo = list(self._early)
        while todo:
            for node in self._units.get(todo.pop(), ()):
                if self._before.get(self._facts.tree.statement(node), False):
                    continue  # it is defined later
                names = self._mentions.of_definition(node)
                more = self._units.keys() if not names.isdisjoint(EVERYTHING) else names & self._units.keys()
                todo.extend(more - self._early)
                self._early |= more

    # -- statements -----------------------------------------------------------------------------------
    # Each method takes whether the goal is reached before something, and returns whether it is after it.
    # After what is never left, it is.

    def _block(self, body: Sequence[ast.stmt], reached: bool) -> bool:
        for statement in body:
            reached = self._statement(statement, reached)
        return reached

    def _statement(self, node: ast.stmt, reached: bool) -> bool:
        self._head(node, reached)
        reached = self._executed(node, reached or self._is_read(node)) or node is self._goal
        self.after[node] = reached
        return reached

    def _head(self, node: ast.stmt, reached: bool) -> None:
        """Record a statement, or the test of a compound one."""
        self._before[node] = self._before.get(node, True) and reached
        if not reached:
            self._mention(self._mentions.of_statement(node))

    def _executed(self, node: ast.stmt, reached: bool) -> bool:  # noqa: C901, PLR0911 (one case a kind of node)
        """Run a statement whose head is recorded."""
        match node:
            case ast.If():
                return self._if(node, reached)
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(node, reached)
            case ast.With() | ast.AsyncWith():
                return self._with(node, reached)
            case ast.Match(cases=cases):  # perhaps none of them matches
                return all([reached, *(self._block(case.body, reached) for case in cases)])
            case ast.ClassDef():
                return self._class(node, reached)
            case ast.Break() if self._breaks:
                self._breaks[-1].append(reached)
                return True
            case ast.Return() | ast.Raise() | ast.Continue():
                return True
            case ast.Expr(value=ast.Call(func=function)) if self._ends_program(function):
                return True
            case ast.Delete() if node in self._unbinders:
                return False
        if isinstance(node, TRIES):
            return self._try(node, reached)
        return reached or self._binds(node)

    def _if(self, node: ast.If, reached: bool) -> bool:
        ends = []
        while True:
            ends.append(self._block(node.body, reached))
            if is_true(node.test):
                self._block(node.orelse, True)
                return all(ends)
            if len(node.orelse) != 1 or not isinstance(node.orelse[0], ast.If):
                ends.append(self._block(node.orelse, reached))
                return all(ends)
            node = node.orelse[0]  # there may be many `elif`
            self._head(node, reached)
            reached = reached or self._is_read(node)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, reached: bool) -> bool:
        reached = reached and not self._unbound_in(node)
        self._head(node, reached)
        if isinstance(node, ast.While):
            inside, ends = reached, is_true(node.test)
        else:
            inside, ends = reached or self._is_target(node.target), False
        breaks: list[bool] = []
        self._breaks.append(breaks)
        self._block(node.body, inside)
        self._breaks.pop()
        return all(breaks) and (ends or self._block(node.orelse, reached))

    def _with(self, node: ast.With | ast.AsyncWith, reached: bool) -> bool:
        entered = reached or any(self._is_target(item.optional_vars) for item in node.items)
        left = self._block(node.body, entered)
        if all(self._mentions.is_passive(item.context_expr) for item in node.items):
            return left
        return left and entered and not self._unbound_in(node)  # it may swallow an error

    def _class(self, node: ast.ClassDef, reached: bool) -> bool:
        if node is not self._owner:
            self._classes.append(node)
            own, self._goal = self._goal, node  # what is bound there is bound in the class alone
            self._block(node.body, reached)
            self._goal = own
            self._classes.pop()
        return reached or node.name == self._goal

    def _try(self, node: ast.Try, reached: bool) -> bool:
        raised = reached and not self._unbound_in(*node.body)
        ends = [self._block(node.orelse, self._block(node.body, reached))]
        for handler in node.handlers:
            named = handler.name is not None and handler.name == self._goal
            ends.append(self._block(handler.body, raised or named) and not named)
        if not node.finalbody:
            return all(ends)
        left = reached and not self._unbound_in(*node.body, *node.orelse, *node.handlers)
        gained = self._block(node.finalbody, left)
        return gained or (all(ends) and not self._unbound_in(*node.finalbody))

    def _ends_program(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Name) and function.id in ("exit", "quit"):
            return self._facts.tree.scope(function).lookup(function.id) is None
        return self._facts.resolve(function) in _EXITS

    def _unbound_in(self, *nodes: ast.stmt | ast.ExceptHandler) -> bool:
        """Return whether the name may be unbound again in some statements."""
        return any(
            node.lineno <= unbinder.lineno <= (node.end_lineno or 0)  # type: ignore[attr-defined]
            for unbinder in self._unbinders
            for node in nodes
        )

    # -- names ----------------------------------------------------------------------------------------

    def _binds(self, node: ast.stmt) -> bool:
        """Return whether a simple statement, or the definition of a function, binds the name."""
        match node:
            case ast.Assign(targets=targets):
                return any(map(self._is_target, targets))
            case ast.AnnAssign(target=target, value=ast.expr()):
                return self._is_target(target)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                return name == self._goal
            case ast.Import(names=names):
                return any((each.asname or each.name.partition(".")[0]) == self._goal for each in names)
            case ast.ImportFrom(names=names):
                return any((each.asname or each.name) == self._goal for each in names)
        return False

    def _is_read(self, node: ast.stmt) -> bool:
        """Return whether a statement always reads the name, or the head of a compound one does."""
        return isinstance(self._goal, Read) and any(reads(node, self._goal.name))

    def _is_target(self, node: ast.expr | None) -> bool:
        match node:
            case ast.Name(id=name):
                return name == self._goal
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return any(map(self._is_target, parts))
        return False


def _units(facts: Names, owner: Owner) -> dict[str, list[ast.AST]]:
    """Return the functions, classes and named lambdas of an owner's own code, by name."""
    found: dict[str, list[ast.AST]] = {}
    for name, bindings in facts.tree.scopes[owner].bindings.items():
        for binding in bindings:
            if isinstance(binding.node, DEFINITIONS):
                found.setdefault(name, []).append(binding.node)
            elif isinstance(binding.value, ast.Lambda) and name_of(binding.node, binding.value) == name:
                found.setdefault(name, []).append(binding.value)
    return found


def unbinds(binding: Binding) -> bool:
    """Check whether a binding takes the name away again."""
    return isinstance(binding.node, (ast.Delete, ast.ExceptHandler))
