"""Probes: what records that a part of a rewritten module runs.

A fix ran if each of its parts ran. A part is a statement, or what Python evaluates later or only sometimes
inside of one: the body of a lambda, an element of a comprehension, a branch of `a if b else c` or `a and b`.
A statement that the fix itself makes conditional, as in `if torch.cuda.is_available():
torch.cuda.synchronize()`, counts where its condition runs.

A probe costs as little as a look-up in a dict, but for the first time.
"""

from __future__ import annotations

import ast
import builtins
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

NAME = "__devicefix_ran__"

# The first line and column and the last ones, as `ast` counts, and the column of the finding.
Place = tuple[int, int, int, int, int]
_Position = tuple[int, int]


def install(record: Callable[[str, list[int]], None]) -> None:
    """Make the probes of this process record what runs.

    Args:
        record: called with the path of a module and the numbers of places, when they run for the first time.
    """
    seen = _Ran(record)

    def probe(key: str) -> None:
        seen[key]

    # TorchDynamo calls it while it traces, instead of a graph break.
    probe._dynamo_marked_constant = True  # type: ignore[attr-defined]  # functions have any attribute
    setattr(builtins, NAME, probe)


class _Ran(dict[str, None]):
    """The code that has run, by the keys of probes.

    Args:
        record: called with the path of a module and the numbers of places, when they run for the first time.
    """

    def __init__(self, record: Callable[[str, list[int]], None]) -> None:
        self._record = record

    def __missing__(self, key: str) -> None:
        self[key] = None
        numbers, _, path = key.partition(":")
        self._record(path, [int(number) for number in numbers.split(",")])


def insert(tree: ast.Module, places: Iterable[Sequence[int]], lines: Sequence[str], path: str) -> None:
    """Insert probes into a module.

    Args:
        tree: the tree of the module, which is changed in place.
        places: what the fixes made. A place without extent is one where a fix removed something.
        lines: the lines of the module.
        path: the path of the module.
    """
    whole: list[Place] = [tuple(place) for place in places]  # type: ignore[misc]  # they have five numbers
    parts = _Parts(tree, whole, lines)
    found: dict[tuple[int, str, int], tuple[_Part, list[int]]] = {}
    for number, place in enumerate(whole):
        part = parts.at(place)
        if part is not None:
            found.setdefault(part.key, (part, []))[1].append(number)
    for part, numbers in found.values():
        part.probe(f"{','.join(map(str, numbers))}:{path}")


@dataclass(slots=True)
class _Statement:
    """A statement in its block."""

    block: list[ast.stmt]
    node: ast.stmt
    behind: bool = False  # whether the probe goes behind the statement, in place of one that is gone

    @property
    def key(self) -> tuple[int, str, int]:
        return id(self.node), "behind" if self.behind else "", 0

    def probe(self, key: str) -> None:
        index = next(i for i, node in enumerate(self.block) if node is self.node) + self.behind
        statement = ast.copy_location(ast.Expr(_probe(key)), self.node)
        self.block.insert(index, ast.fix_missing_locations(statement))


@dataclass(slots=True)
class _Expression:
    """An expression that is not always evaluated where its statement runs."""

    parent: ast.AST
    name: str
    index: int | None

    @property
    def key(self) -> tuple[int, str, int]:
        return id(self.parent), self.name, -1 if self.index is None else self.index

    def probe(self, key: str) -> None:
        """Replace what the expression evaluates first by an expression that has the same value.

        So pytest still explains an assertion by the parts of the expression.
        """
        parent, name, index = self.parent, self.name, self.index
        node = self._child(parent, name, index)
        while type(node) in _FIRST:
            parent, name = node, _FIRST[type(node)]
            index = 0 if isinstance(getattr(parent, name), list) else None
            node = self._child(parent, name, index)
        ran = ast.Compare(_probe(key), [ast.Is()], [ast.Constant(None)])
        probed = ast.copy_location(ast.IfExp(ran, node, ast.Constant(None)), node)
        ast.fix_missing_locations(probed)
        if index is None:
            setattr(parent, name, probed)
        else:
            getattr(parent, name)[index] = probed

    @staticmethod
    def _child(parent: ast.AST, name: str, index: int | None) -> ast.expr:
        value = getattr(parent, name)
        found: ast.expr = value if index is None else value[index]
        return found


# The child that an expression evaluates first.
_FIRST: dict[type, str] = {
    ast.Attribute: "value",
    ast.Await: "value",
    ast.BinOp: "left",
    ast.BoolOp: "values",
    ast.Call: "func",
    ast.Compare: "left",
    ast.IfExp: "test",
    ast.Subscript: "value",
    ast.UnaryOp: "operand",
}
_Part = _Statement | _Expression


def _probe(key: str) -> ast.expr:
    return ast.Call(ast.Name(NAME, ast.Load()), [ast.Constant(key)], [])


class _Parts:
    """The parts of a module that run on their own."""

    def __init__(self, tree: ast.Module, places: Sequence[Place], lines: Sequence[str]) -> None:
        self._tree = tree
        self._made = _merged((place[:2], place[2:4]) for place in places)
        self._lines = lines

    def at(self, place: Place) -> _Part | None:
        """Return the part that a place belongs to."""
        start, is_gone = place[:2], place[:2] == place[2:4]
        path = list(self._path(self._tree.body, start, is_gone))
        if is_gone and not (path and self._is_inside(path[-1].node, start)):
            return self._beside(path[-1].node if path else self._tree, start, place[4])
        for statement in path[:-1]:
            if self._is_made(_start(statement.node)):
                return statement
        if not path:
            return None
        parts: list[_Part] = [path[-1], *self._expressions(path[-1].node, start, is_gone)]
        return parts[-1]

    def _is_made(self, position: _Position) -> bool:
        """Return whether a fix made what is at a position."""
        index = bisect_right(self._made, position, key=itemgetter(0))
        return index > 0 and position < self._made[index - 1][1]

    def _path(self, block: list[ast.stmt], at: _Position, is_gone: bool) -> Iterator[_Statement]:
        """Yield the statements around a position, the innermost last."""
        index = (bisect_left if is_gone else bisect_right)(block, at, key=_start) - 1
        if index >= 0 and _is_around(block[index], at, is_gone):
            yield _Statement(block, block[index])
            for inner in _blocks(block[index]):
                yield from self._path(inner, at, is_gone)

    def _is_inside(self, node: ast.stmt, at: _Position) -> bool:
        """Return whether a position is inside a simple statement or a head, not between statements."""
        first = next((block[0] for block in _blocks(node)), None)
        return first is None or (at < _start(first) and not self._is_blank(at, _start(first)))

    def _is_blank(self, start: _Position, end: _Position) -> bool:
        """Return whether there is nothing but comments between two positions."""
        lines = [line.encode() for line in self._lines[start[0] - 1 : end[0]]]
        lines[-1] = lines[-1][: end[1]]
        lines[0] = lines[0][start[1] :]
        return not any(line.strip(b" \t\f\r;") and not line.lstrip().startswith(b"#") for line in lines)

    def _beside(self, around: ast.AST, at: _Position, column: int) -> _Statement | None:
        """Return the statement before one that is gone in its block, or else the one behind it."""
        beside = [_Statement(block, node) for block in _blocks(around) for node in block]
        before = next((each for each in reversed(beside) if _end(each.node) <= at), None)
        behind = next((each for each in beside if _start(each.node) >= at), None)
        if before is None or (
            behind is not None
            and behind.block is not before.block
            and (not self._is_blank(_end(before.node), at))
        ):
            return behind
        while before.node.col_offset < column and (inner := list(_blocks(before.node))):
            before = _Statement(inner[-1], inner[-1][-1])
        return _Statement(before.block, before.node, behind=True)

    def _expressions(self, node: ast.AST, at: _Position, is_gone: bool) -> Iterator[_Expression]:
        """Yield the conditional expressions around a position, the innermost last."""
        for child in _children(node):
            if isinstance(child.node, ast.expr) and not _is_around(child.node, at, is_gone):
                continue
            if _is_conditional(child) and not self._is_made(_condition(child)):
                yield _Expression(child.parent, child.name, child.index)
            yield from self._expressions(child.node, at, is_gone)


def _merged(spans: Iterable[tuple[_Position, _Position]]) -> list[tuple[_Position, _Position]]:
    """Return spans in order, those that overlap as one."""
    found: list[tuple[_Position, _Position]] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


@dataclass(frozen=True, slots=True)
class _Child:
    parent: ast.AST
    name: str
    index: int | None
    node: Any


def _children(node: ast.AST) -> Iterator[_Child]:
    """Yield the children of a node that are no statements."""
    for name, value in ast.iter_fields(node):
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.stmt):
                yield _Child(node, name, index, child)


_CONDITIONAL = {
    ast.Lambda: ("body",),
    ast.IfExp: ("body", "orelse"),
    ast.ListComp: ("elt",),
    ast.SetComp: ("elt",),
    ast.GeneratorExp: ("elt",),
    ast.DictComp: ("key", "value"),
    ast.comprehension: ("iter", "ifs"),
    ast.Assert: ("msg",),
    ast.ExceptHandler: ("type",),
    ast.match_case: ("guard",),
}
_FIRST_ALWAYS = {ast.BoolOp: "values", ast.Compare: "comparators"}


def _is_conditional(child: _Child) -> bool:
    kind = type(child.parent)
    if kind in _FIRST_ALWAYS:
        return child.name == _FIRST_ALWAYS[kind] and bool(child.index)
    return child.name in _CONDITIONAL.get(kind, ())


def _condition(child: _Child) -> _Position:
    """Return where the operator is that makes an expression conditional."""
    parent = child.parent
    if isinstance(parent, ast.IfExp):
        return _end(parent.body)
    if isinstance(parent, ast.BoolOp) and child.index:
        return _end(parent.values[child.index - 1])
    return _start(parent) if isinstance(parent, ast.expr) else (0, 0)


def _is_around(node: ast.stmt | ast.expr, at: _Position, is_gone: bool) -> bool:
    """Return whether a node is around a position; what is gone may have been its end."""
    return _start(node) <= at and (at < _end(node) or (is_gone and at == _end(node)))


def _start(node: ast.stmt | ast.expr) -> _Position:
    first = min(getattr(node, "decorator_list", ()), key=lambda each: each.lineno, default=node)
    return first.lineno, node.col_offset


def _end(node: ast.stmt | ast.expr) -> _Position:
    assert node.end_lineno is not None and node.end_col_offset is not None  # it was parsed
    return node.end_lineno, node.end_col_offset


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a statement or a module, in the order of the source."""
    if isinstance(node, (ast.stmt, ast.Module)):
        parts = (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ()))
        blocks = [getattr(part, "body", None) for part in parts]
        blocks += [getattr(node, name, None) for name in ("orelse", "finalbody")]
        yield from filter(None, blocks)
