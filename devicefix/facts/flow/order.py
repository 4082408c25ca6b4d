"""The order in which the statements of one function, or of a module, may run."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

from devicefix.facts.flow.points import Point, starts_of
from devicefix.facts.tree import TRIES

_COMPOUND = (
    *TRIES, ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Match,
)  # fmt: skip

_FAR = 2000  # points: what is further away is not looked at

Body = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Flow:
    """The points of one function's or module's own code; functions and classes inside it are single points.

    Args:
        owner: the function, module or class.
        swallows: whether a context manager may catch an error.

    Attributes:
        points: all of them, in the order of the source; those of a `finally` twice, since errors run it, too.
        entry: where the function or module begins.
        exit: where the function returns, or the module ends.
        ends: the last points of the compound statements, which nothing reaches where none of it ends.
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
        self, start: Iterable[Point], is_end: Callable[[Point], bool], among: Container[Point] | None = None
    ) -> Iterator[Point]:
        """Yield the points that may run after those of `start`, up to the ends.

        Args:
            start: where to begin.
            is_end: whether a path ends at a point.
            among: what the paths must not leave, None for all points.
        """
        todo = [after for point in start for after in point.after]
        seen: set[Point] = set()
        while todo:
            point = todo.pop()
            if point in seen or not (among is None or point in among):
                continue
            seen.add(point)
            yield point
            if not is_end(point):
                todo.extend(point.after)

    def before_rebinding(
        self,
        start: Point,
        path: str,
        among: Container[Point] | None = None,
        ends: Container[Point] = frozenset(),
    ) -> Iterator[Point]:
        """Yield the points that may run after one, before a path is bound again: up to those that bind it.

        Args:
            start: where to begin.
            path: a name, or a dotted path with constant keys.
            among: what the paths must not leave, None for all points.
            ends: where a path ends, too.
        """
        bound = self.binding(path)
        found = self.reachable([start], lambda point: point in bound or point in ends, among)
        return islice(found, _FAR)

    def leading_to(self, wanted: Iterable[Point], ends: Container[Point]) -> dict[Point, Point]:
        """Return the points from which a wanted one may run before any of `ends`, each with the nearest."""
        found = {point: point for point in wanted}
        todo = deque(found)
        while todo:
            point = todo.popleft()
            for before in self.before[point]:
                if before not in found and before not in ends:
                    found[before] = found[point]
                    todo.append(before)
        return found

    def binding(self, path: str) -> set[Point]:
        """Return the points that bind a path anew, or what it is an attribute or item of."""
        return {point for start in starts_of(path) for point in self.binders.get(start, ())}

    def reading(self, path: str) -> Iterator[Point]:
        """Yield the points that read a path; of `batch['image']` those that read this item, or the whole."""
        plain, bracket, _ = path.partition("[")
        found = self.readers.get(plain, ())
        yield from (point for point in found if not bracket or point.reads_item(plain, path))

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
            if isinstance(statement, _COMPOUND):  # one that never ends has such a point, too
                self.ends[statement] = self._add(statement, before)
                before = [self.ends[statement]] if before else []
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


def _is_true(test: ast.expr) -> bool:
    """Return whether a test is a true number, which no fix changes, unlike a string that names a device."""
    return isinstance(test, ast.Constant) and isinstance(test.value, int) and bool(test.value)


def _connect(before: Iterable[Point], after: Point) -> None:
    for point in before:
        point.after.append(after)
