"""Proof that a name is bound, or that a statement has run, whenever a place is reached.

This is definite assignment, as compilers prove it for local variables, over the code of a module or function,
and over the functions inside it, which may run before it ends. A function, or a method of a class, may run as
soon as anything that runs mentions it: to call it, to pass it on, to decorate something with it, or in the
body of another function that may run. A module's functions may also run once it is imported.
https://docs.oracle.com/javase/specs/jls/se21/html/jls-16.html
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from devicefix.facts.names import Names
from devicefix.facts.scopes import COMPREHENSIONS, Binding, Scope

Owner = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_TRIES = (ast.Try, getattr(ast, "TryStar", ast.Try))
_EXITS = {"sys.exit", "os._exit"}
# Whoever reads these can call any function.
_EVERYTHING = frozenset({"eval", "exec", "globals", "locals", "vars"})
# Their decorators call nothing, and what they put around a block lets every error through.
_PASSIVE = {"torch", "functools", "abc", "typing", "dataclasses", "enum", "numpy", "warnings", "contextlib"}
_SWALLOWING = {"contextlib.suppress", "contextlib.ExitStack", "contextlib.AsyncExitStack"}
_PASSIVE_BUILTINS = {"property", "staticmethod", "classmethod", "open"}
_OF_PROPERTIES = {"getter", "setter", "deleter"}

# What every module has besides the builtins.
_OF_MODULES = {"__file__", "__name__", "__doc__", "__package__", "__spec__", "__loader__"}


@dataclass(frozen=True, slots=True)
class Read:
    """The goal that a name has been read.

    Attributes:
        name: The name.
    """

    name: str


Goal = str | ast.stmt | Read


class Bound:
    """What is bound, and what has run, at the places of a module.

    Args:
        facts: The module's names.
        inserted: The reads of names that a fix has inserted, which prove nothing of these names.
    """

    def __init__(self, facts: Names, inserted: Collection[ast.AST] = ()) -> None:
        self._facts = facts
        self._inserted = inserted
        self._runs: dict[tuple[Owner, Goal], _Run] = {}
        self._mentions = _Mentions(facts)

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
            return self._is_bound(name, first) or (
                statement is not None
                and not self._is_unbound(name, first)
                and self._run(owner, Read(name)).after.get(statement, False)
            )
        goals: list[Goal] = [name]
        if owner is None and name not in tree.root.bindings:
            if _is_builtin(name):
                return True
            goals = [*self._stars]
        runs = [self._run(owner or tree.module, goal) for goal in goals]
        reached = (run.first if statement is None else run.after.get(statement, False) for run in runs)
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
        assert isinstance(scope.node, Owner)
        return self._run(scope.node, name).reaches(site)

    def _is_unbound(self, name: str, site: ast.AST) -> bool:
        """Return whether something unbinds a name again, or nothing binds it."""
        found = self._facts.tree.scope(site).lookup(name)
        return found is None or any(map(_unbinds, found[1]))

    def _was_read(self, name: str, site: ast.AST) -> bool:
        """Return whether the function around a node has always read a name before, so that it is bound."""
        if self._is_unbound(name, site):
            return False
        statement = self._facts.tree.statement(site)
        if any(read not in self._inserted for read in _reads(statement, name)):
            return True
        scope: Scope | None = self._facts.tree.scope(statement)
        while scope is not None and isinstance(scope.node, ast.ClassDef):
            scope = scope.parent
        if scope is None or not isinstance(scope.node, Function):
            return False
        return self._run(scope.node, Read(name)).reaches(statement)

    @cached_property
    def _stars(self) -> list[ast.stmt]:
        """The star imports."""
        return [node for node in self._facts.tree.imports if node.names[0].name == "*"]

    def _run(self, owner: Owner, goal: Goal) -> _Run:
        key = owner, goal
        if key not in self._runs:
            self._runs[key] = _Run(self._facts, self._mentions, owner, goal)
        return self._runs[key]


class _Mentions:
    """The names that statements and definitions read.

    Args:
        facts: The module's names.
    """

    def __init__(self, facts: Names) -> None:
        self._facts = facts
        self._of_statements: dict[ast.stmt, frozenset[str]] = {}
        self._of_definitions: dict[ast.AST, frozenset[str]] = {}

    def of_statement(self, node: ast.stmt) -> frozenset[str]:
        """Return the names that a statement reads itself, without its blocks, and what they may call.

        The name of a definition is among them if a decorator may call it.
        """
        if node not in self._of_statements:
            found = _read(_evaluated(node))
            if isinstance(node, _DEFINITIONS) and self._may_call(node):
                found.add(node.name)
            self._of_statements[node] = frozenset(found)
        return self._of_statements[node]

    def of_definition(self, node: ast.AST) -> frozenset[str]:
        """Return the names that a function, lambda or class reads anywhere."""
        if node not in self._of_definitions:
            self._of_definitions[node] = frozenset(_read([node]))
        return self._of_definitions[node]

    def _may_call(self, node: Function | ast.ClassDef) -> bool:
        """Return whether a definition may call what it defines, or a method of it."""
        if isinstance(node, ast.ClassDef) and (node.keywords or self._bases_may_call(node)):
            return True
        return not all(map(self.is_passive, node.decorator_list))

    def _bases_may_call(self, node: ast.ClassDef) -> bool:
        """Return whether a base class of the module sees its subclasses as they are made."""
        for base in node.bases:
            found = self._facts.tree.root.lookup(base.id) if isinstance(base, ast.Name) else None
            for binding in found[1] if found else ():
                body = getattr(binding.node, "body", ())
                if any(getattr(each, "name", None) == "__init_subclass__" for each in body):
                    return True
        return False

    def is_passive(self, node: ast.expr) -> bool:
        """Return whether a decorator calls nothing, or a context manager lets every error through."""
        function = node.func if isinstance(node, ast.Call) else node
        if isinstance(function, ast.Attribute) and function.attr in _OF_PROPERTIES:
            return True
        if isinstance(function, ast.Name) and function.id in _PASSIVE_BUILTINS:
            return self._facts.tree.scope(node).lookup(function.id) is None
        name = self._facts.resolve(function) or ""
        return name.partition(".")[0] in _PASSIVE and name not in _SWALLOWING


class _Run:
    """How code runs up to a goal: a name is bound or read, or a statement has run.

    Args:
        facts: The module's names.
        mentions: What the module's statements read.
        owner: The module, function or class in whose own code the goal is.
        goal: The goal: a name that is bound, one that is read, or a statement.

    Attributes:
        first: Whether the goal is reached where the owner begins.
        after: Whether it is reached after a statement of the owner's code.
    """

    def __init__(self, facts: Names, mentions: _Mentions, owner: Owner, goal: Goal) -> None:
        self._facts = facts
        self._tree = facts.tree
        self._mentions = mentions
        self._owner = owner
        self._goal = goal
        scope = facts.tree.scopes[owner]
        bindings = scope.bindings.get(goal, []) if isinstance(goal, str) else []
        self.first = any(binding.parameter for binding in bindings)
        self.after: dict[ast.stmt, bool] = {}
        self._before: dict[ast.stmt, bool] = {}
        self._unbinders = [binding.node for binding in bindings if _unbinds(binding)]
        self._breaks: list[list[bool]] = []
        self._classes: list[ast.ClassDef] = []
        self._units = _units(facts, owner)
        early: set[str] = set()  # what may run before the goal is reached
        self._early = early
        end = self._block(owner.body, self.first) if isinstance(owner.body, list) else self.first
        if isinstance(owner, ast.Module) and not end:
            early.update(self._units)
        self._spread(early)
        # A function that may run at any time unbinds a nonlocal or global name again.
        self._is_lost = any(self._unit(node)[1] is not None for node in self._unbinders)
        if self._is_lost:
            self.first, self.after = False, {}

    def reaches(self, site: ast.AST) -> bool:
        """Return whether the goal is reached whenever a node is, which is inside the owner."""
        name, unit = self._unit(site)
        if self._is_lost or (unit is not None and self._unbinders):
            return False
        if name is not None and name not in self._early:
            return True
        return self._before.get(self._tree.statement(site if unit is None else unit), False)

    # -- functions ------------------------------------------------------------------------------------

    def _unit(self, site: ast.AST) -> tuple[str | None, ast.AST | None]:
        """Return the outermost function or class around a site that may run it later, and its name.

        Both are None in the owner's own code; a lambda may have no name.
        """
        name: str | None = None
        unit: ast.AST | None = None
        scope: Scope | None = self._tree.scope(site)
        while scope is not None and scope.node is not self._owner:
            node = scope.node
            if isinstance(node, ast.Lambda):
                name, unit = _name_of(self._tree.parents.get(node), node), node
            elif isinstance(node, Function) or (isinstance(node, ast.ClassDef) and name is not None):
                name, unit = node.name, node
            scope = scope.parent
        return name, unit

    def _mention(self, names: frozenset[str]) -> None:
        """Record what a statement mentions that runs before the goal is reached."""
        if not names.isdisjoint(_EVERYTHING):
            self._early.update(self._units)
        self._early.update(names & self._units.keys())
        for outer in self._classes:
            if not names.isdisjoint(self._tree.scopes[outer].bindings):  # a method, perhaps
                self._early.add(self._classes[0].name)

    def _spread(self, early: set[str]) -> None:
        """Add what the functions that may run before the goal mention."""
        todo = list(early)
        while todo:
            for node in self._units.get(todo.pop(), ()):
                if self._before.get(self._tree.statement(node), False):
                    continue  # it is defined later
                names = self._mentions.of_definition(node)
                more = self._units.keys() if not names.isdisjoint(_EVERYTHING) else names & self._units.keys()
                todo.extend(more - early)
                early |= more

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
            case ast.Match():
                return self._match(node, reached)
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
        if isinstance(node, _TRIES):
            return self._try(node, reached)
        return reached or self._binds(node)

    def _if(self, node: ast.If, reached: bool) -> bool:
        ends = []
        while True:
            reached = reached or self._binds_inside(node.test)
            ends.append(self._block(node.body, reached))
            if _is_true(node.test):
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
            reached = inside = reached or self._binds_inside(node.test)
            ends = _is_true(node.test)
        else:
            reached = reached or self._binds_inside(node.iter)
            inside, ends = reached or self._is_target(node.target), False
        breaks: list[bool] = []
        self._breaks.append(breaks)
        self._block(node.body, inside)
        self._breaks.pop()
        return all(breaks) and (ends or self._block(node.orelse, reached))

    def _with(self, node: ast.With | ast.AsyncWith, reached: bool) -> bool:
        entered = reached or any(
            self._binds_inside(item.context_expr) or self._is_target(item.optional_vars)
            for item in node.items
        )
        left = self._block(node.body, entered)
        if all(self._mentions.is_passive(item.context_expr) for item in node.items):
            return left
        return left and entered and not self._unbound_in(node)  # it may swallow an error

    def _match(self, node: ast.Match, reached: bool) -> bool:
        reached = reached or self._binds_inside(node.subject)
        ends = []
        for case in node.cases:
            bound = isinstance(self._goal, str) and self._goal in _captures(case.pattern)
            ends.append(self._block(case.body, reached or bound))
        last = node.cases[-1]
        takes_all = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and not last.guard
        return all(ends) and (takes_all or reached)

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
            return self._tree.scope(function).lookup(function.id) is None
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
            case ast.Assign(targets=targets, value=value):
                return any(map(self._is_target, targets)) or self._binds_inside(value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return self._is_target(target) or self._binds_inside(value)
            case ast.AugAssign(target=target, value=value):
                return self._is_target(target) or self._binds_inside(value)
            case ast.Expr(value=value):
                return self._binds_inside(value)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                return name == self._goal
            case ast.Import(names=names):
                return any((each.asname or each.name.partition(".")[0]) == self._goal for each in names)
            case ast.ImportFrom(names=names):
                return any((each.asname or each.name) == self._goal for each in names)
        return False

    def _is_read(self, node: ast.stmt) -> bool:
        """Return whether a statement always reads the name, or the head of a compound one does."""
        return isinstance(self._goal, Read) and any(_reads(node, self._goal.name))

    def _is_target(self, node: ast.expr | None) -> bool:
        match node:
            case ast.Name(id=name):
                return name == self._goal
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return any(map(self._is_target, parts))
            case ast.Starred(value=value):
                return self._is_target(value)
        return False

    def _binds_inside(self, node: ast.expr) -> bool:
        """Return whether an expression is `(name := …)`, alone or where it is always evaluated."""
        if not isinstance(self._goal, str) or ":=" not in self._facts.source.text:
            return False
        return any(
            isinstance(each, ast.NamedExpr) and each.target.id == self._goal
            for each in _always_evaluated(node)
        )


def _units(facts: Names, owner: Owner) -> dict[str, list[ast.AST]]:
    """Return the functions, classes and named lambdas of an owner's own code, by name."""
    found: dict[str, list[ast.AST]] = {}
    for name, bindings in facts.tree.scopes[owner].bindings.items():
        for binding in bindings:
            if isinstance(binding.node, _DEFINITIONS):
                found.setdefault(name, []).append(binding.node)
            elif isinstance(binding.value, ast.Lambda) and _name_of(binding.node, binding.value) == name:
                found.setdefault(name, []).append(binding.value)
    return found


def _name_of(parent: ast.AST | None, node: ast.Lambda) -> str | None:
    """Return the name that a lambda is assigned to, None for any other lambda."""
    match parent:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is node:
            return name
    return None


def _is_builtin(name: str) -> bool:
    return hasattr(builtins, name) or name in _OF_MODULES


def _unbinds(binding: Binding) -> bool:
    return isinstance(binding.node, (ast.Delete, ast.ExceptHandler))


def _captures(pattern: ast.pattern) -> Iterator[str | None]:
    """Yield the names that a pattern binds if it matches."""
    for node in ast.walk(pattern):
        if isinstance(node, (ast.MatchAs, ast.MatchStar)):
            yield node.name
        elif isinstance(node, ast.MatchMapping):
            yield node.rest


def _evaluated(node: ast.stmt) -> Iterator[ast.AST]:
    """Yield what a statement evaluates itself, without its blocks and what runs later."""
    for name, value in ast.iter_fields(node):
        for part in value if isinstance(value, list) else (value,):
            match part:
                case ast.stmt() | ast.ExceptHandler() if name != "handlers":
                    continue
                case ast.ExceptHandler():
                    yield from filter(None, [part.type])
                case ast.match_case():
                    yield from filter(None, [part.pattern, part.guard])
                case ast.Attribute(attr=attr) if name == "decorator_list" and attr in _OF_PROPERTIES:
                    continue
                case ast.Name() | ast.Attribute() if name == "bases":
                    continue  # the methods that are inherited run when those of the class do
                case ast.Lambda() if name == "value" and _name_of(node, part) is not None:
                    yield part.args
                case ast.AST():
                    yield part


def _read(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that are read in some nodes."""
    return {
        node.id
        for root in nodes
        for node in ast.walk(root)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _is_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def _reads(node: ast.stmt, name: str) -> Iterator[ast.Name]:
    """Yield the places at which a statement, or the head of a compound one, reads a name whenever it runs."""
    match node:
        case ast.If(body=[*_, ast.Raise()]):
            return  # as an `assert`, a fix may remove it
        case ast.If(test=part) | ast.While(test=part):
            pass
        case ast.For(iter=part) | ast.AsyncFor(iter=part) | ast.Match(subject=part):
            pass
        case ast.With(items=[first, *_]) | ast.AsyncWith(items=[first, *_]):
            part = first.context_expr
        case ast.Assign(value=part) | ast.AugAssign(value=part) | ast.Expr(value=part):
            pass
        case ast.AnnAssign(value=ast.expr() as part) | ast.Return(value=ast.expr() as part):
            pass
        case _:
            return
    for each in _always_evaluated(part):
        if isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Load):
            yield each


def _always_evaluated(node: ast.expr) -> Iterator[ast.AST]:
    """Yield the parts of an expression that are evaluated whenever it is."""
    todo: list[ast.AST] = [node]
    while todo:
        part = todo.pop()
        yield part
        match part:
            case ast.BoolOp(values=[first, *_]):
                todo.append(first)
            case ast.IfExp(test=test):
                todo.append(test)
            case ast.Compare(left=left, comparators=[first, *_]):
                todo += (left, first)
            case ast.Lambda():
                pass
            case _ if isinstance(part, COMPREHENSIONS):
                todo.append(part.generators[0].iter)
            case _:
                todo.extend(ast.iter_child_nodes(part))
