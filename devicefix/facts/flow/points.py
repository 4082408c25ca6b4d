"""The points of the control flow: what each evaluates, binds and reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from itertools import chain

from devicefix.facts.flow.tensors import ATTRIBUTES, METHODS
from devicefix.facts.scopes import DEFINITIONS, FUNCTIONS, bound_names, captured, dotted
from devicefix.facts.tree import children

# What says nothing about the content of a collection or tensor.
_UNREAD = {*METHODS["add"], "clear", "size", "dim", "numel", "shape", "dtype", "device"}

_LATER = (*FUNCTIONS, ast.ClassDef)


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
            if isinstance(part, DEFINITIONS):
                yield part.name
        for node in self.nodes:
            if type(node) is ast.NamedExpr:
                yield node.target.id
        if isinstance(self.node, (ast.Import, ast.ImportFrom)):
            yield from bound_names(self.node)
        if isinstance(self.node, ast.match_case):
            yield from captured(self.node)

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
                    if path and not isinstance(value, (ast.List, ast.Tuple, ast.Dict)):
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

    def reads_item(self, whole: str, path: str) -> bool:
        """Return whether an item by a constant key is read, or the whole that it is an item of."""
        paths = {node: path_of(node) for node in self.nodes if hasattr(node, "ctx")}
        parts = {getattr(node, "value", None) for node, found in paths.items() if found is not None}
        return any(
            isinstance(node.ctx, ast.Load) and (found == path or (found == whole and node not in parts))
            for node, found in paths.items()
        )


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
    return node.attr in ATTRIBUTES["view"] and not own


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


def root(path: str) -> str:
    """Return the name that a path such as `a.b['c']` starts with."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def starts_of(path: str) -> list[str]:
    """Return a path and what it starts with: `a`, `a.b` and `a.b['c']` for the last."""
    return [path[: match.start()] for match in re.finditer(r"[.\[]|\Z", path)]


def without_index(node: ast.expr) -> ast.expr:
    """Return an expression without the subscripts at its end."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node
