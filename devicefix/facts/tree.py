"""A syntax tree with parents, scopes and bindings.

Statements are all walked when the tree is made; the expressions of a statement are walked when something asks
for them. That is several times as fast as walking everything, and gives the same answers.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import ClassVar, TypeVar, cast
from weakref import proxy

from devicefix.facts.scopes import COMPREHENSIONS, DEFINITIONS, Binding, Bindings, Scope, dotted
from devicefix.facts.words import Words, as_read

Node = TypeVar("Node", bound=ast.AST)

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
# Fields that hold no node, or none that is asked for.
_PLAIN = {
    "ctx", "op", "ops", "kind", "type_comment", "id", "attr", "arg", "asname", "module", "level", "simple",
    "conversion", "is_async",
}  # fmt: skip


def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """Return the fields of a kind of node that may hold others, the last one first."""
    names = () if kind is ast.Constant else kind._fields
    return tuple(name for name in reversed(names) if name not in _PLAIN)


_KINDS = [kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)]
_FIELDS = {kind: _fields(kind) for kind in _KINDS}
# Those of a statement, without the statements that are part of it, and these.
_HEADER = {kind: tuple(name for name in names if name not in _BLOCKS) for kind, names in _FIELDS.items()}
_INSIDE = {kind: tuple(name for name in names if name in _BLOCKS) for kind, names in _FIELDS.items()}
TRIES = (ast.Try, getattr(ast, "TryStar", ast.Try))  # Python 3.11
# The parts of expressions that bind names, open a scope, or mark what is inside them.
_SPECIAL = {ast.NamedExpr, ast.comprehension, ast.Lambda, *COMPREHENSIONS, ast.JoinedStr}


class _Parents(dict[ast.AST, ast.AST]):
    """The parent of each node, where the tree walks the statement of a node that is not known yet.

    Args:
        tree: the tree; a weak reference, since a circle would keep it until it is collected.
    """

    def __init__(self, tree: Tree) -> None:
        super().__init__()
        self._tree = proxy(tree)

    def __missing__(self, node: ast.AST) -> ast.AST:
        self._tree.walk_around(node)
        if node in self:
            return self[node]
        raise KeyError(node)

    def get(self, node: ast.AST | None, default: ast.AST | None = None) -> ast.AST | None:  # type: ignore[override]
        """Return the parent of a node, None for the module and what is not part of it."""
        try:
            return default if node is None else self[node]
        except KeyError:
            return default


class Tree:
    """A syntax tree with each node's parent, and the scopes in it.

    Args:
        module: the syntax tree.
        text: what it was parsed from.

    Attributes:
        LAZY: whether expressions are walked only when something asks for them; a test turns it off.
        text: the text with its line ends and identifiers as `ast` reads them.
        words: the lines of that text that hold words.
        root: the module's scope.
        scopes: the scopes of the module, its functions and classes, by their nodes.
        parents: the parent of every node but the module.
        attributes: the bindings of dotted paths such as `args.cuda` or `self.device`, by path.
        imports: the import statements.
        star_imports: the modules named in `from x import *`, with their leading dots.
        declared_elsewhere: the names in `global` and `nonlocal` statements.
    """

    LAZY: ClassVar[bool] = True

    def __init__(self, module: ast.Module, text: str) -> None:
        self.module = module
        self.text = as_read(text)
        self.words = Words(self.text)
        self.root = Scope(module, None)
        self.scopes: dict[ast.AST, Scope] = {module: self.root}
        self.parents = _Parents(self)
        self._scope_of: dict[ast.AST, Scope] = {module: self.root}
        self._strings: dict[ast.AST, ast.JoinedStr] = {}
        self._blocks: dict[ast.stmt, list[ast.stmt]] = {}
        self._positions: dict[ast.stmt, int] = {}
        self._reads: dict[str, list[ast.expr]] = {}
        self._calls: dict[str, list[ast.Call]] = {}
        self._places: dict[ast.AST, dict[ast.expr | None, int]] = {}
        # The statements in the order of the source, the first and last lines of their headers, and the nodes
        # of these, None where they have not been walked.
        self._statements: list[ast.AST] = []
        self._first: list[int] = []
        self._last: list[int] = []
        self._nodes: list[list[ast.AST] | None] = []
        self._of_kind: dict[type[ast.AST], list[ast.AST]] = {}
        self._complete = False

        self._bindings = Bindings(self.root)
        self.attributes = self._bindings.attributes
        self.imports = self._bindings.imports
        self.star_imports = self._bindings.star_imports
        self.declared_elsewhere = self._bindings.declared_elsewhere
        self._walk_statements()
        for index in self._at(self.words.lines_with(":=")):  # no other expression binds names around it
            self._walk_expressions(index)
        if not self.LAZY:
            self._walk_everything()
        self._bindings.settle()

    @property
    def nodes(self) -> Sequence[ast.AST]:
        """All nodes, in the order of the source."""
        return list(self.nodes_at(None))

    @property
    def statements(self) -> Sequence[ast.AST]:
        """The module, its statements, and their handlers and cases, in the order of the source."""
        return self._statements

    def of_kind(self, *kinds: type[Node]) -> Iterator[Node]:
        """Return the statements of some classes; those of one class are in the order of the source."""
        found = chain.from_iterable(self._of_kind.get(kind, ()) for kind in kinds)
        return cast("Iterator[Node]", found)

    def nodes_at(self, lines: Iterable[int] | None) -> Iterator[ast.AST]:
        """Return the nodes of the statements at some lines, in the order of the source.

        Args:
            lines: the lines, in order; None for all. With `LAZY` off, it is as if all were named.
        """
        return chain.from_iterable(self.statements_at(lines))

    def statements_at(self, lines: Iterable[int] | None) -> Iterator[Sequence[ast.AST]]:
        """Return the statements at some lines, each with the nodes of its expressions; see `nodes_at`."""
        everything = range(len(self._statements))
        indexes = self._at(lines) if lines is not None and self.LAZY else everything
        return map(self._walk_expressions, indexes)

    def nodes_with(self, *words: str) -> Iterator[ast.AST]:
        """Return the nodes of the statements whose text holds one of some words."""
        lines = sorted({line for word in words for line in self.words.lines_with(word)})
        return self.nodes_at(lines)

    def nodes_with_name(self, name: str) -> Iterator[ast.AST]:
        """Return the nodes of the statements whose text holds a name."""
        return self.nodes_at(self.words.lines_with_name(name))

    def calls_with_name(self, name: str) -> Sequence[ast.Call]:
        """Return the calls in the statements whose text holds a name, in the order of the source."""
        if name not in self._calls:
            found = self.nodes_with_name(name)
            self._calls[name] = [node for node in found if isinstance(node, ast.Call)]
        return self._calls[name]

    def reads(self, path: str) -> Sequence[ast.expr]:
        """Return the places that read a name or a dotted path, in the order of the source."""
        if path not in self._reads:
            named = self.nodes_with_name(path.rpartition(".")[2])
            uses = (node for node in named if isinstance(node, (ast.Name, ast.Attribute)))
            self._reads[path] = [use for use in uses if isinstance(use.ctx, ast.Load) and dotted(use) == path]
        return self._reads[path]

    @cached_property
    def paths_by_name(self) -> dict[str, list[str]]:
        """The dotted paths of `attributes` by the name at their end."""
        found: dict[str, list[str]] = {}
        for path in self.attributes:
            found.setdefault(path.rpartition(".")[2], []).append(path)
        return found

    @property
    def loads(self) -> frozenset[str]:
        """All names that are read."""
        names = (node for node in self.nodes if isinstance(node, ast.Name))
        return frozenset(name.id for name in names if isinstance(name.ctx, ast.Load))

    def scope(self, node: ast.AST) -> Scope:
        """Return the scope in which an expression or statement is evaluated.

        Decorators, defaults and annotations of a function, and the bases of a class, belong to the
        scope around it.
        """
        if node not in self._scope_of:
            self.walk_around(node)
        return self._scope_of.get(node, self.root)

    def f_string(self, node: ast.AST) -> ast.JoinedStr | None:
        """Return the outermost f-string that a node is inside of, None if there is none."""
        if node not in self._scope_of:
            self.walk_around(node)
        return self._strings.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Yield pairs of a child and its parent, from the node up to the module."""
        parent = self.parents.get(node)
        while parent is not None:
            yield node, parent
            node, parent = parent, dict.get(self.parents, parent)  # that of a known node is known

    def around(self, node: ast.AST, *kinds: type[Node]) -> Iterator[Node]:
        """Yield the nodes of some classes around a node, inner to outer."""
        return (parent for _, parent in self.ancestors(node) if isinstance(parent, kinds))

    def call_of(self, function: ast.AST | None) -> ast.Call | None:
        """Return the call of a function, None where it is not called."""
        parent = self.parents.get(function)
        return parent if isinstance(parent, ast.Call) and parent.func is function else None

    def lookup(self, node: ast.AST) -> tuple[Scope, list[Binding]] | None:
        """Return the scope that binds a name at its place, and all bindings there; None for other nodes."""
        return self.scope(node).lookup(node.id) if isinstance(node, ast.Name) else None

    def bound(self, node: ast.AST) -> Sequence[Binding]:
        """Return all bindings of a name in the scope that binds it at its place; none for other nodes."""
        found = self.lookup(node)
        return found[1] if found is not None else ()

    def place(self, node: ast.expr) -> int:
        """Return the place of an expression among the elements, arguments, keys or values of its parent."""
        parent = self.parents[node]
        if parent not in self._places:
            lists = [getattr(parent, name, None) for name in ("elts", "args", "keys", "values")]
            self._places[parent] = {
                each: place for found in lists if isinstance(found, list) for place, each in enumerate(found)
            }
        return self._places[parent][node]

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the innermost statement that a node is part of."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the list of statements that a statement is part of."""
        if statement not in self._blocks:
            for name in _BLOCKS:
                block = getattr(self.parents[statement], name, None)
                if isinstance(block, list):
                    self._blocks.update(dict.fromkeys(block, block))
                    self._positions.update((each, place) for place, each in enumerate(block))
        return self._blocks.get(statement, [statement])

    def after(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the statements that follow one in its block."""
        return self.block(statement)[self.position(statement) + 1 :]

    def position(self, statement: ast.stmt) -> int:
        """Return the index of a statement in its block."""
        self.block(statement)
        return self._positions.get(statement, 0)

    def walk_around(self, node: ast.AST) -> None:
        """Walk the statement that a node is part of, unless that has been done."""
        if node in self._scope_of:
            return
        line = getattr(node, "lineno", None)
        if line is None:  # of a comprehension or a list of parameters
            line = next((part.lineno for part in ast.walk(node) if hasattr(part, "lineno")), 0)
        for index in self._at([line]):
            self._walk_expressions(index)
        if node not in self._scope_of and not self._complete:  # Python 3.11 misplaces what is in f-strings
            self._walk_everything()

    def _walk_everything(self) -> None:
        self._complete = True
        for index in range(len(self._statements)):
            self._walk_expressions(index)

    def _at(self, lines: Iterable[int]) -> Iterator[int]:
        """Yield the indexes of the statements whose headers cover some lines, which are in order."""
        following = 0
        for line in lines:
            index = max(following, bisect_left(self._last, line))
            while index < len(self._first) and self._first[index] <= line:
                yield index
                index += 1
            following = max(following, index)

    def _walk_statements(self) -> None:
        """Walk all statements, with the names that they bind."""
        parents, scope_of = self.parents, self._scope_of
        todo: list[tuple[ast.AST, Scope]] = [(self.module, self.root)]
        while todo:
            node, scope = todo.pop()
            kind = type(node)
            self._bindings.bind(node, scope)
            inner = scope
            if isinstance(node, DEFINITIONS):
                inner = self.scopes[node] = Scope(node, scope)
                if not isinstance(node, ast.ClassDef):
                    self._bindings.parameters(node.args, inner)
            first, last = _header(node)
            self._statements.append(node)
            self._of_kind.setdefault(kind, []).append(node)
            self._first.append(first)
            self._last.append(last)
            for name in _INSIDE[kind]:
                for child in reversed(getattr(node, name)):
                    parents[child] = node
                    scope_of[child] = inner
                    todo.append((child, inner))
        self._nodes = [None] * len(self._statements)

    def _walk_expressions(self, index: int) -> list[ast.AST]:
        """Walk the expressions of a statement, without the statements inside it.

        Returns:
            The statement and the nodes of its expressions, each before what is inside it.
        """
        known = self._nodes[index]
        if known is not None:
            return known
        statement = self._statements[index]
        nodes = self._nodes[index] = []
        parents, scope_of = self.parents, self._scope_of
        todo = [(statement, scope_of[statement])]
        fields = _HEADER[type(statement)]
        while todo:  # in the order of the source: what is put there last comes first
            node, scope = todo.pop()
            nodes.append(node)
            inner = scope
            if node is not statement:
                kind = type(node)
                fields = _FIELDS[kind]
                if kind in _SPECIAL:
                    inner = self._enter(node, scope)
            for name in fields:
                value = getattr(node, name)
                if value is None:
                    continue
                # The parameters of a lambda are bound inside it, but their defaults belong around it.
                into = scope if name == "args" and inner is not scope else inner
                for child in reversed(value) if isinstance(value, list) else (value,):
                    if isinstance(child, ast.AST):
                        parents[child] = node
                        scope_of[child] = into
                        todo.append((child, into))
        return nodes

    def _enter(self, node: ast.AST, scope: Scope) -> Scope:
        """Record what a part of an expression binds, and return the scope inside it."""
        if isinstance(node, (ast.Lambda, *COMPREHENSIONS)):
            inner = Scope(node, scope)
            if isinstance(node, ast.Lambda):
                self._bindings.parameters(node.args, inner)
            return inner
        if isinstance(node, ast.JoinedStr):
            for part in walk(node):
                if part is not node:
                    self._strings.setdefault(part, node)
        else:
            self._bindings.bind(node, scope)
        return scope


def statements_in(node: ast.AST) -> list[ast.AST]:
    """Return the statements, handlers and cases right below a node."""
    return [child for name in _INSIDE[type(node)] for child in getattr(node, name)]


def children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes right below a node, as `ast.iter_child_nodes` does, without contexts and operators."""
    found: list[ast.AST] = []
    for name in reversed(_FIELDS[type(node)]):
        value = getattr(node, name)
        if isinstance(value, ast.AST):
            found.append(value)
        elif value.__class__ is list:
            found += [each for each in value if isinstance(each, ast.AST)]
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those inside it, as `ast.walk` does, without contexts and operators: twice as fast."""
    todo = [node]
    for each in todo:  # which grows
        yield each
        todo += children(each)


def _header(node: ast.AST) -> tuple[int, int]:
    """Return the first and last line of a statement, without the statements that are part of it."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno, node.body[0].lineno
    first: int = getattr(node, "lineno", 0)  # a module has no header
    last: int = getattr(node, "end_lineno", 0) or first
    if first and _INSIDE[type(node)]:
        decorators = getattr(node, "decorator_list", ())
        if decorators:
            first = decorators[0].lineno
        body = getattr(node, "body", ())
        if body:
            last = body[0].lineno
    return first, last
