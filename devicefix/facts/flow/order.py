"""The order in which the statements of one function, or of a module, may run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain

from devicefix.facts.scopes import FUNCTIONS, dotted
from devicefix.facts.tree import TRIES, children

_VIEW_ATTRIBUTES = {"data", "T", "mT"}
# What says nothing about the content of a collection or tensor.
_UNREAD = {
    "append", "appendleft", "extend", "extendleft", "insert", "add", "clear", "size", "dim", "numel", "shape",
    "dtype", "device",
}  # fmt: skip

_LATER = (*FUNCTIONS, ast.ClassDef)
_COMPOUND = (
    *TRIES, ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Match,
)  # fmt: skip

Body = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Point:
    """A node of the control flow: a statement, or the header of a compound one.

    Args:
        node: the statement.
        parts: what is evaluated there.

    Attributes:
        binds: the targets that are bound afterwards.
        value: what these are bound to, or to parts of, where another point evaluates it.
        unbinds: the name that an exception had, and which is gone afterwards.
        after: what may run next.
    """

    def __init__(self, node: ast.AST, parts: tuple[ast.AST, ...] = ()) -> None:
        self.node = node
        self.parts = parts
        self.binds: tuple[ast.expr, ...] = ()
        self.value: ast.expr | None = None
        self.unbinds = ""
        self.after: list[Point] = []

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Return the nodes of what is evaluated."""
        return tuple(chain.from_iterable(map(own_nodes, self.parts)))

    @cached_property
    def bound(self) -> frozenset[str]:
        """Return the paths that are rebound."""
        found = set(self._named())
        todo = list(self.binds)
        while todo:
            target = todo.pop()
            if isinstance(target, (ast.Tuple, ast.List)):
                todo.extend(target.elts)
            elif isinstance(target, ast.Starred) or (isinstance(target, ast.Attribute) and is_view(target)):
                todo.append(target.value)
            elif path := path_of(target):
                found.add(path)
        return frozenset(found)

    def _named(self) -> Iterator[str]:
        """Return the names that are bound, and not as targets."""
        for part in self.parts:
            if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield part.name
        for node in self.nodes:
            if type(node) is ast.NamedExpr:
                yield node.target.id
        if isinstance(self.node, (ast.Import, ast.ImportFrom)):
            for alias in self.node.names:
                yield alias.asname or alias.name.partition(".")[0]
        if isinstance(self.node, ast.match_case):
            yield from _captures(self.node.pattern)

    @property
    def cleared(self) -> Iterator[str]:
        """The paths of the collections that are cleared."""
        targets: list[ast.expr] = []
        match self.node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="clear", value=value))):
                targets = [value]
            case ast.Delete():
                targets = [without_index(target) for target in self.node.targets]
        return filter(None, map(dotted, targets))

    @cached_property
    def reads(self) -> frozenset[str]:
        """Return the paths whose content is read: not only whether they are None, or how long."""
        return self.reads_but()

    def reads_but(self, left_out: ast.AST | None = None) -> frozenset[str]:  # noqa: C901 (one case a kind of node)
        """Return the paths whose content is read, except for those that only one node inside reads."""
        found: set[str] = set()
        todo: list[ast.AST] = list(self.parts)
        while todo:
            node = todo.pop()
            if node is left_out:
                continue
            match node:
                case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr in _UNREAD and dotted(
                    value
                ):
                    todo += [*node.args, *node.keywords]
                    continue
                case ast.Call(func=ast.Name(id="len"), args=[argument]) if dotted(argument):
                    continue
                case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot()]) if dotted(left):
                    continue
                case ast.Attribute(attr=attr, value=value) if attr in _UNREAD and dotted(value):
                    continue
                case ast.Subscript(ctx=ast.Store(), value=value, slice=index) if dotted(value):
                    todo.append(index)
                    continue
                case ast.AugAssign(target=target, value=value):
                    todo.append(value)
                    path = dotted(target)
                    if path and not isinstance(value, (ast.List, ast.Tuple)):
                        found.add(path)
                    continue
                case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                    path = dotted(node)
                    if path:
                        parts = path.split(".")
                        found.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))
                        continue
            todo += children(node)
        return frozenset(found)


class Flow:
    """The points of one function's or module's own code; functions and classes inside it are single points.

    Args:
        owner: the function, module or class.
        swallows: whether a context manager may catch an error.

    Attributes:
        points: all of them, in the order of the source; those of a `finally` twice, since errors run it, too.
        entry: where the function or module begins.
        exit: where the function returns, or the module ends.
        ends: the last points of the compound statements that may end.
    """

    def __init__(self, owner: Body, swallows: Callable[[ast.expr], bool] = lambda _manager: False) -> None:
        self.owner = owner
        self.points: list[Point] = []
        self.entry = Point(owner)
        self.exit = Point(owner)
        self.ends: dict[ast.AST, Point] = {}
        self._swallows = swallows
        self._loops: list[tuple[Point, list[Point]]] = []  # where `continue` goes, what `break` leaves
        _connect(self._block(owner.body, [self.entry]), self.exit)

    def reachable(
        self, start: Iterable[Point], among: Container[Point], *ends: Container[Point]
    ) -> Iterator[Point]:
        """Yield the points that may run after those of `start`, up to those of `ends`.

        Args:
            start: where to begin.
            among: what the paths must not leave.
            ends: where a path ends.
        """
        todo = [after for point in start for after in point.after]
        seen: set[Point] = set()
        while todo:
            point = todo.pop()
            if point in seen or point not in among:
                continue
            seen.add(point)
            yield point
            if not any(point in end for end in ends):
                todo.extend(point.after)

    @cached_property
    def by_node(self) -> dict[ast.AST, list[Point]]:
        """Return the points by their nodes."""
        found: dict[ast.AST, list[Point]] = {}
        for point in self.points:
            found.setdefault(point.node, []).append(point)
        return found

    @cached_property
    def readers(self) -> dict[str, list[Point]]:
        """Return the points that read a path, by path."""
        return self._by_path(lambda point: point.reads)

    @cached_property
    def binders(self) -> dict[str, list[Point]]:
        """Return the points that rebind a path, by path."""
        return self._by_path(lambda point: point.bound)

    @cached_property
    def clearers(self) -> dict[str, list[Point]]:
        """Return the points that clear a collection, by its path."""
        return self._by_path(lambda point: point.cleared)

    def _by_path(self, paths: Callable[[Point], Iterable[str]]) -> dict[str, list[Point]]:
        found: dict[str, list[Point]] = {}
        for point in self.points:
            for path in paths(point):
                found.setdefault(path, []).append(point)
        return found

    @cached_property
    def before(self) -> dict[Point, list[Point]]:
        """Return what may run right before a point."""
        found: dict[Point, list[Point]] = {point: [] for point in (*self.points, self.exit)}
        for point in self.points:
            for after in point.after:
                found[after].append(point)
        return found

    def _add(self, node: ast.AST, before: Sequence[Point], *parts: ast.AST | None) -> Point:
        point = Point(node, tuple(part for part in parts if part is not None))
        self.points.append(point)
        _connect(before, point)
        return point

    def _block(self, statements: Sequence[ast.stmt], before: list[Point]) -> list[Point]:
        for statement in statements:
            before = self._statement(statement, before)
            if isinstance(statement, _COMPOUND) and before:
                self.ends[statement] = self._add(statement, before)
                before = [self.ends[statement]]
        return before

    def _statement(self, node: ast.stmt, before: list[Point]) -> list[Point]:
        """Add a statement, and return the points after which the next one runs."""
        match node:
            case ast.If():
                return self._if(node, before)
            case ast.While():
                return self._while(node, before)
            case ast.For() | ast.AsyncFor():
                return self._for(node, before)
            case ast.With() | ast.AsyncWith():
                return self._with(node, before)
            case ast.Match():
                return self._match(node, before)
            case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
                self._leave(node, before)
                return []
        if isinstance(node, TRIES):
            return self._try(node, before)
        return [self._simple(node, before)]

    def _simple(self, node: ast.stmt, before: list[Point]) -> Point:
        match node:
            case ast.Assign(targets=targets, value=value):
                point = self._add(node, before, value, *targets)
                point.binds = tuple(targets)
            case ast.AnnAssign(target=target, value=value):
                point = self._add(node, before, value)
                point.binds = (target,) if value is not None else ()
            case ast.Delete(targets=targets):
                point = self._add(node, before)
                point.binds = tuple(targets)
            case _:
                point = self._add(node, before, node)
        return point

    def _leave(self, node: ast.Return | ast.Raise | ast.Break | ast.Continue, before: list[Point]) -> None:
        """Add a statement that leaves its block."""
        match node:
            case ast.Return():
                _connect([self._add(node, before, node.value)], self.exit)
            case ast.Raise():
                self._add(node, before, node.exc)
            case ast.Break() if self._loops:
                self._loops[-1][1].extend(before)
            case ast.Continue() if self._loops:
                _connect(before, self._loops[-1][0])

    def _match(self, node: ast.Match, before: list[Point]) -> list[Point]:
        head = self._add(node, before, node.subject)
        ends = [head]
        for case in node.cases:
            bind = self._add(case, [head], case.guard)
            bind.value = node.subject
            ends += self._block(case.body, [bind])
        return ends

    def _if(self, node: ast.If, before: list[Point]) -> list[Point]:
        ends: list[Point] = []
        while True:
            test = self._add(node, before, node.test)
            ends += self._block(node.body, [test])
            before = [] if _is_true(node.test) else [test]
            if len(node.orelse) != 1 or not isinstance(node.orelse[0], ast.If):
                return ends + (self._block(node.orelse, before))
            node = node.orelse[0]  # there may be many `elif`

    def _while(self, node: ast.While, before: list[Point]) -> list[Point]:
        head = self._add(node, before, node.test)
        left = self._looped(node.body, head, head)
        if _is_true(node.test):
            return left
        return [*left, *self._block(node.orelse, [head])]

    def _for(self, node: ast.For | ast.AsyncFor, before: list[Point]) -> list[Point]:
        start = self._add(node, before, node.iter)
        head = self._add(node, [start])
        bind = self._add(node, [head])
        bind.binds = (node.target,)
        bind.value = node.iter
        left = self._looped(node.body, head, bind)
        return [*left, *self._block(node.orelse, [head])]

    def _looped(self, body: Sequence[ast.stmt], head: Point, first: Point) -> list[Point]:
        """Add a loop's body, between `first` and `head`, and return the points before each `break`."""
        left: list[Point] = []
        self._loops.append((head, left))
        _connect(self._block(body, [first]), head)
        self._loops.pop()
        return left

    def _with(self, node: ast.With | ast.AsyncWith, before: list[Point]) -> list[Point]:
        first = len(self.points)
        head = self._add(node, before, *(item.context_expr for item in node.items))
        head.binds = tuple(item.optional_vars for item in node.items if item.optional_vars)
        ends = self._block(node.body, [head])
        swallows = any(self._swallows(item.context_expr) for item in node.items)
        return [*ends, *self.points[first:]] if swallows else ends

    def _try(self, node: ast.Try, before: list[Point]) -> list[Point]:
        first = len(self.points)
        ends = self._block(node.body, before)
        raising = [self._add(node, [*before, *self.points[first:]])] if node.handlers else []
        ends = self._block(node.orelse, ends)
        for handler in node.handlers:
            ends += self._handler(handler, raising)
        if node.finalbody:
            self._block(node.finalbody, [*before, *self.points[first:]])  # and then the error goes on
        return self._block(node.finalbody, ends)

    def _handler(self, node: ast.ExceptHandler, raising: list[Point]) -> list[Point]:
        ends = self._block(node.body, [self._add(node, raising, node.type)])
        if node.name is None or not ends:
            return ends
        end = self._add(node, ends)
        end.unbinds = node.name
        return [end]


def _captures(pattern: ast.pattern) -> Iterator[str]:
    """Return the names that a pattern binds."""
    for node in ast.walk(pattern):
        name = getattr(node, "rest" if isinstance(node, ast.MatchMapping) else "name", None)
        if isinstance(name, str):
            yield name


def _is_true(test: ast.expr) -> bool:
    """Return whether a test is a true number, which no fix changes, unlike a string that names a device."""
    return isinstance(test, ast.Constant) and isinstance(test.value, int) and bool(test.value)


def _connect(before: Iterable[Point], after: Point) -> None:
    for point in before:
        point.after.append(after)


def own_nodes(part: ast.AST) -> list[ast.AST]:
    """Return the nodes of an expression or statement, without the bodies of functions, which run later."""
    found, todo = [], [part]
    while todo:
        node = todo.pop()
        found.append(node)
        if not isinstance(node, _LATER):
            todo += children(node)
    return found


def is_view(node: ast.Attribute) -> bool:
    """Return whether an attribute is a view of a tensor, as `x.data` is; `self.data` is not."""
    own = isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr in _VIEW_ATTRIBUTES and not own


def path_of(node: ast.AST) -> str | None:
    """Return `a.b['c']` for such a chain of attributes and constant keys, else None."""
    parts: list[str] = []
    while not isinstance(node, ast.Name):
        match node:
            case ast.Attribute(attr=attr, value=value) if not is_view(node):
                parts.append(f".{attr}")
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key))):
                parts.append(f"[{key!r}]")
            case _:
                return None
        node = value
    return "".join((node.id, *reversed(parts)))


def without_index(node: ast.expr) -> ast.expr:
    """Return an expression without the subscripts at its end."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node
