"""The uses of a kept value in a function."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from devicefix.facts.copies.keeping import Holder, emptying, outlives_call, overwriting
from devicefix.facts.flow.order import Flow, Point, path_of
from devicefix.facts.module import Facts

OUT_OF_SIGHT = 0
FAR = 2000  # points: where so many lie between them, a copy, its change and its use are not reported


class Uses:
    """The uses of what one holder keeps, and the paths to them.

    Args:
        facts: the facts of the module.
        flow: the function, or the module itself.
        holder: what keeps it.
        more: the points that use it out of sight, such as calls of functions that do.

    Attributes:
        emptied: the points after which nothing is kept any more.
        leading: the points from which on, with themselves, it may come to a use.
    """

    def __init__(self, facts: Facts, flow: Flow, holder: Holder, more: Iterable[Point] = ()) -> None:
        self._flow = flow
        self._path = holder.path.partition("[")[0]
        uses = {point for point in _readers(flow, holder.path) if point not in _overwriting(flow, holder)}
        uses.update(more)
        if outlives_call(facts, flow, holder):
            uses.add(flow.exit)
        self._uses = frozenset(uses)
        self.emptied = emptying(flow, holder)
        self.leading = self._backwards()
        self._known: dict[Point, int | None] = {}

    def _backwards(self) -> set[Point]:
        leading, todo = set(self._uses), deque(self._uses)
        while todo and len(leading) < len(self._uses) * FAR:
            for point in self._flow.before[todo.popleft()]:
                if point not in leading and point not in self.emptied:
                    leading.add(point)
                    todo.append(point)
        return leading

    def behind(self, start: Point, change: ast.AST | None = None) -> int | None:
        """Return the line of a use after a point, `OUT_OF_SIGHT` for one elsewhere, or None.

        Args:
            start: the point.
            change: a change in it, beside which there may be a use: `return y.add_(1) - x`.
        """
        # An assignment changes its target after it has read everything.
        if isinstance(change, ast.Call) and start in self._uses and self._path in start.reads_but(change):
            return self._line(start)
        if start in self.emptied:
            return None
        way: dict[Point, None] = {}
        point: Point | None = start
        found: int | None = None
        while point is not None:
            if point in self._known:
                found = self._known[point]
                break
            if point in way:  # a loop
                return self._searched(start)
            way[point] = None
            point = next(
                (following for following in reversed(point.after) if following in self.leading), None
            )
            if point is not None and point in self._uses:
                found = self._line(point)
                break
        self._known.update(dict.fromkeys(way, found))
        return found

    def _searched(self, start: Point) -> int | None:
        points = self._flow.reachable([start], self.leading, self.emptied)
        return next((self._line(point) for point in points if point in self._uses), None)

    def _line(self, use: Point) -> int:
        return OUT_OF_SIGHT if use is self._flow.exit else getattr(use.node, "lineno", OUT_OF_SIGHT)


def _overwriting(flow: Flow, holder: Holder) -> AbstractSet[Point]:
    return set() if holder.adds else overwriting(flow).get(holder.path, set())


def _readers(flow: Flow, path: str) -> Iterator[Point]:
    """Return the points that read a path; of `batch['image']` those that read this item, or all items."""
    plain, bracket, _ = path.partition("[")
    for point in flow.readers.get(plain, ()):
        if not bracket or any(_may_read_item(node, plain, path) for node in point.nodes):
            yield point


def _may_read_item(node: ast.AST, plain: str, path: str) -> bool:
    """Return whether a node reads an item, or more than one item with a constant key."""
    match node:
        case ast.Subscript(ctx=ast.Load()):
            found = path_of(node)
            return found == path or (found is None and path_of(node.value) == plain)
        case ast.Call(args=arguments):
            return any(path_of(argument) == plain for argument in arguments)
        case ast.Return(value=ast.expr() as value) | ast.Assign(value=value):
            return path_of(value) == plain
        case ast.For(iter=value):
            return path_of(value) == plain
    return False
