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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
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

    @cache
    def ran(key: str) -> None:
        numbers, _, path = key.partition(":")
        record(path, [int(number) for number in numbers.split(",")])

    def probe(key: str) -> None:
        ran(key)

    # TorchDynamo calls it while it traces, instead of a graph break.
    probe._dynamo_marked_constant = True  # type: ignore[attr-defined]  # functions have any attribute
    setattr(builtins, NAME, probe)


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
    found: dict[_Part, list[int]] = {}
    for number, place in enumerate(whole):
        part = parts.at(place)
        if part is not None:
            found.setdefault(part, []).append(number)
    for part, numbers in found.items():
        part.probe(f"{','.join(map(str, numbers))}:{path}")


@dataclass(frozen=True, slots=True)
class _Part:
    """A statement, or an expression that is not always evaluated where its statement runs.

    Attributes:
        parent: the node around it.
        name: the field of the parent that has it.
        index: its index in this field, if that is a list.
        node: the node.
        around: the statement or module that it is in.
        behind: whether the probe goes behind the statement, in place of one that is gone.
    """

    parent: ast.AST
    name: str
    index: int | None
    node: Any
    around: ast.AST
    behind: bool = False

    def probe(self, key: str) -> None:
        """Insert a probe."""
        if isinstance(self.node, ast.stmt):
            block = getattr(self.parent, self.name)
            place = next(i for i, node in enumerate(block) if node is self.node) + self.behind
            statement = ast.copy_location(ast.Expr(_probe(key)), self.node)
            block.insert(place, ast.fix_missing_locations(statement))
            return
        # Replace what the expression evaluates first by an expression that has the same value. So pytest
        # still explains an assertion by the parts of the expression.
        fields, name = _slot(self.parent, self.name, self.index)
        while isinstance(fields[name], _FIRST):
            fields, name = _slot(fields[name], next(f for f in fields[name]._fields if f != "op"), 0)
        ran = ast.Compare(_probe(key), [ast.Is()], [ast.Constant(None)])
        probed = ast.copy_location(ast.IfExp(ran, fields[name], ast.Constant(None)), fields[name])
        fields[name] = ast.fix_missing_locations(probed)


def _slot(parent: ast.AST, name: str, index: int | None) -> tuple[Any, Any]:
    """Return the list or the fields of a node that have a child, and its index or name there."""
    value = getattr(parent, name)
    return (value, index) if isinstance(value, list) else (vars(parent), name)


# Expressions that always evaluate the first expression in them, and first.
_OPERATIONS = (ast.BinOp, ast.BoolOp, ast.UnaryOp)
_FIRST = (ast.Attribute, ast.Await, ast.Call, ast.Compare, ast.IfExp, ast.Subscript, *_OPERATIONS)


def _probe(key: str) -> ast.expr:
    return ast.Call(ast.Name(NAME, ast.Load()), [ast.Constant(key)], [])


class _Parts:
    """The parts of a module that run on their own."""

    def __init__(self, tree: ast.Module, places: Sequence[Place], lines: Sequence[str]) -> None:
        self._tree = tree
        self._made = [(place[:2], place[2:4]) for place in places]
        self._lines = lines
        self._parts: list[_Part] = []
        self._collect(tree, tree)

    def _collect(self, parent: ast.AST, around: ast.AST) -> None:
        """Add the parts below a node, in the order of the source, outer parts before inner ones."""
        for name, value in ast.iter_fields(parent):
            for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(child, ast.AST):
                    is_statement = isinstance(child, ast.stmt)
                    if is_statement or _is_conditional(parent, name, index):
                        self._parts.append(_Part(parent, name, index, child, around))
                    self._collect(child, child if is_statement else around)

    def at(self, place: Place) -> _Part | None:
        """Return the part that a place belongs to."""
        at, is_gone = place[:2], place[:2] == place[2:4]
        around = [part for part in self._parts if _is_around(part.node, at, is_gone)]
        statements = [part for part in around if isinstance(part.node, ast.stmt)]
        if is_gone and not (statements and self._is_inside(statements[-1].node, at)):
            return self._beside(statements[-1].node if statements else self._tree, at, place[4])
        if not statements:
            return None
        made = (part for part in statements[:-1] if self._is_made(_start(part.node)))
        inside = (part for part in around if part.around is statements[-1].node)
        expressions = [part for part in inside if not self._is_made(_condition(part))]
        return next(made, [statements[-1], *expressions][-1])

    def _is_made(self, position: _Position) -> bool:
        """Return whether a fix made what is at a position."""
        return any(start <= position < end for start, end in self._made)

    def _inside(self, node: ast.AST) -> list[_Part]:
        """Return the statements in the blocks of a statement or a module."""
        return [part for part in self._parts if part.around is node and isinstance(part.node, ast.stmt)]

    def _is_inside(self, node: ast.stmt, at: _Position) -> bool:
        """Return whether a position is inside a simple statement or a head, not between statements."""
        inside = self._inside(node)
        return not inside or (at < _start(inside[0].node) and not self._is_blank(at, _start(inside[0].node)))

    def _is_blank(self, start: _Position, end: _Position) -> bool:
        """Return whether there is nothing but comments between two positions."""
        lines = [line.encode() for line in self._lines[start[0] - 1 : end[0]]]
        lines[-1] = lines[-1][: end[1]]
        lines[0] = lines[0][start[1] :]
        return not any(line.strip(b" \t\f\r;") and not line.lstrip().startswith(b"#") for line in lines)

    def _beside(self, around: ast.AST, at: _Position, column: int) -> _Part | None:
        """Return the statement before one that is gone in its block, or else the one behind it."""
        beside = self._inside(around)
        before = next((each for each in reversed(beside) if _end(each.node) <= at), None)
        behind = next((each for each in beside if _start(each.node) >= at), None)
        if before is None or (
            behind is not None
            and (behind.parent, behind.name) != (before.parent, before.name)
            and not self._is_blank(_end(before.node), at)
        ):
            return behind
        while before.node.col_offset < column and (inner := self._inside(before.node)):
            before = inner[-1]
        return replace(before, behind=True)


_CONDITIONAL: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Lambda: ("body",),
    ast.IfExp: ("body", "orelse"),
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp), ("elt",)),
    ast.DictComp: ("key", "value"),
    ast.comprehension: ("iter", "ifs"),
    ast.Assert: ("msg",),
    ast.ExceptHandler: ("type",),
    ast.match_case: ("guard",),
}
_FIRST_ALWAYS = {ast.BoolOp: "values", ast.Compare: "comparators"}


def _is_conditional(parent: ast.AST, name: str, index: int | None) -> bool:
    kind = type(parent)
    if kind in _FIRST_ALWAYS:
        return name == _FIRST_ALWAYS[kind] and bool(index)
    return name in _CONDITIONAL.get(kind, ())


def _condition(part: _Part) -> _Position:
    """Return where the operator is that makes an expression conditional."""
    parent = part.parent
    if isinstance(parent, ast.IfExp):
        return _end(parent.body)
    if isinstance(parent, ast.BoolOp) and part.index:
        return _end(parent.values[part.index - 1])
    return _start(parent) if isinstance(parent, ast.expr) else (0, 0)


def _is_around(node: ast.stmt | ast.expr, at: _Position, is_gone: bool) -> bool:
    """Return whether a node is around a position; what is gone may have been its end."""
    start, end = _start(node), _end(node)
    if is_gone and isinstance(node, ast.stmt):
        return start < at <= end
    return start <= at and (at < end or (is_gone and at == end))


def _start(node: ast.stmt | ast.expr) -> _Position:
    first = min(getattr(node, "decorator_list", ()), key=lambda each: each.lineno, default=node)
    return first.lineno, node.col_offset


def _end(node: ast.stmt | ast.expr) -> _Position:
    assert node.end_lineno is not None and node.end_col_offset is not None  # it was parsed
    return node.end_lineno, node.end_col_offset
