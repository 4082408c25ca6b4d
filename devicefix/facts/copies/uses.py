"""The uses of a kept value in a function."""

from __future__ import annotations

from collections import deque

from devicefix.facts.copies.keeping import Holder, emptying, outlives_call
from devicefix.facts.flow import Flow, Point
from devicefix.facts.module import Facts

OUT_OF_SIGHT = 0
FAR = 2000  # points: where so many lie between them, a copy, its change and its use are not reported


class Uses:
    """The uses of what one holder keeps, and the paths to them.

    Args:
        facts: the facts of the module.
        flow: the function, or the module itself.
        holder: what keeps it.

    Attributes:
        emptied: the points after which nothing is kept any more.
        leading: the points from which on, with themselves, it may come to a use.
    """

    def __init__(self, facts: Facts, flow: Flow, holder: Holder) -> None:
        self._flow = flow
        uses = [*flow.readers.get(holder.path, ())]
        if outlives_call(facts, flow, holder):
            uses.append(flow.exit)
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

    def behind(self, start: Point) -> int | None:
        """Return the line of a use after a point, `OUT_OF_SIGHT` for one elsewhere, or None."""
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
