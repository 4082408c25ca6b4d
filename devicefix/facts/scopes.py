"""Scopes of a module and what is bound in them, from one walk over its syntax tree."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from devicefix.facts.words import lines_that_matter, lines_with

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One place where a name is bound.

    `value` is the expression that it is bound to, None where there is no single one (a loop variable,
    a parameter, part of an unpacked value). `imported` is the dotted name of what an import binds,
    `default` what a parameter is bound to when nothing is given.
    """

    node: ast.AST
    value: ast.expr | None = None
    imported: str | None = None
    parameter: bool = False
    default: ast.expr | None = None


@dataclass(slots=True, eq=False)
class Scope:
    """A module, class, function, lambda or comprehension."""

    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)  # declared global or nonlocal here

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def is_module(self) -> bool:
        return self.parent is None

    def chain(self) -> Iterator[Scope]:
        """The scopes in which a name used here is looked up, inner to outer."""
        scope: Scope | None = self
        while scope is not None:
            if scope is self or not scope.is_class:
                yield scope
            scope = scope.parent

    def lookup(self, name: str) -> tuple[Scope, list[Binding]] | None:
        """The nearest scope that binds a name, and all places there that do."""
        for scope in self.chain():
            if name in scope.bindings and name not in scope.elsewhere:
                return scope, scope.bindings[name]
        return None

    @property
    def function(self) -> Scope | None:
        """The outermost function that this scope is part of."""
        found = None
        scope: Scope | None = self
        while scope is not None:
            if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found = scope
            scope = scope.parent
        return found


_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
# Fields that hold no node, or none that says anything.
_PLAIN = {
    "ctx", "op", "ops", "kind", "type_comment", "id", "attr", "arg", "asname", "module", "level", "simple",
    "conversion", "is_async",
}  # fmt: skip


def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a kind of node that may hold others, the last one first."""
    names = () if kind is ast.Constant else kind._fields
    return tuple(name for name in reversed(names) if name not in _PLAIN)


_KINDS = [kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)]
_FIELDS = {kind: _fields(kind) for kind in _KINDS}
# Those of a statement, less the statements that are part of it, and these.
_HEADER = {kind: tuple(name for name in names if name not in _BLOCKS) for kind, names in _FIELDS.items()}
_INSIDE = {kind: tuple(name for name in names if name in _BLOCKS) for kind, names in _FIELDS.items()}
_OPENING = {ast.Lambda, *COMPREHENSIONS}


class Tree:
    """A syntax tree with each node's parent, and the scopes in it.

    Statements are all gone through; expressions only where the text holds a word that matters.

    Args:
        module: the syntax tree.
        text: what it was parsed from.

    Attributes:
        parents: the parent of every node but the module.
        scopes: the scope that each scope-making node opens.
        nodes: the nodes of the statements that matter, each before what is inside it.
        strings: the f-string that a node is inside of, for those that are.
        attributes: values assigned to dotted paths, such as `args.cuda` or `self.device`, by path.
        imports: the import statements.
        star_imports: the modules named in `from x import *`, with their leading dots.
        loads: the names that are read, in the statements that matter.
        declared_elsewhere: the names in `global` and `nonlocal` statements.
        bound: how many bindings are known.
    """

    def __init__(self, module: ast.Module, text: str) -> None:
        self.module = module
        self.text = text
        self.parents: dict[ast.AST, ast.AST] = {}
        self.root = Scope(module, None)
        self.scopes: dict[ast.AST, Scope] = {module: self.root}
        self.within: dict[ast.AST, Scope] = {module: self.root}
        self.nodes: list[ast.AST] = [module]
        self.strings: dict[ast.AST, ast.JoinedStr] = {}
        self.attributes: dict[str, list[Binding]] = {}
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.star_imports: list[str] = []
        self.loads: set[str] = set()
        self.declared_elsewhere: set[str] = set()
        self.bound = 0
        self._blocks: dict[ast.stmt, list[ast.stmt]] = {}
        self._reads: dict[str, list[ast.expr]] = {}
        self._listed = 0
        self._known_everywhere = False
        self._seen: set[ast.AST] = set()
        _Walk(self, self._seen).statements(lines_that_matter(text))

    def scope(self, node: ast.AST) -> Scope:
        """The scope in which an expression or statement is evaluated.

        Decorators, defaults and annotations of a function, and the bases of a class, belong to the
        scope around it.
        """
        return self.within.get(node, self.root)

    def look_into(self, statement: ast.AST) -> None:
        """Make sure that the expressions of a statement are known, whether or not its text matters."""
        if isinstance(statement, ast.stmt) and statement not in self._seen:
            _Walk(self, self._seen).expressions(statement, self.within[statement])

    def look_for(self, words: re.Pattern[str]) -> None:
        """Make sure that the expressions of the statements are known that hold some words.

        Args:
            words: matches none that stretches over lines.
        """
        _Walk(self, self._seen).more(lines_with(words, self.text))

    def look_everywhere(self) -> None:
        """Make sure that the expressions of all statements are known."""
        if not self._known_everywhere:
            self._known_everywhere = True
            for node in tuple(self.parents):
                self.look_into(node)

    def reads(self, path: str) -> Sequence[ast.expr]:
        """The known places that read a name or a dotted path."""
        for node in islice(self.nodes, self._listed, None):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                self._reads.setdefault(dotted(node) or "", []).append(node)
        self._listed = len(self.nodes)
        return self._reads.get(path, ())

    def ancestors(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Pairs of a child and its parent, from the node up to the module."""
        parent = self.parents.get(node)
        while parent is not None:
            yield node, parent
            node, parent = parent, self.parents.get(parent)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that a node is part of."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that a statement is part of."""
        if statement not in self._blocks:
            for name in _BLOCKS:
                block = getattr(self.parents[statement], name, None)
                if isinstance(block, list):
                    self._blocks.update(dict.fromkeys(block, block))
        return self._blocks.get(statement, [statement])


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` for such an attribute chain or name, else None."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    names.append(node.id)
    return ".".join(reversed(names))


def with_defaults(arguments: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """The parameters of a function, each with its default."""
    plain = [*arguments.posonlyargs, *arguments.args]
    missing = len(plain) - len(arguments.defaults)
    yield from zip(plain, [*[None] * missing, *arguments.defaults], strict=True)
    yield from zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)


def _any_between(lines: list[int], first: int, last: int) -> bool:
    """Whether one of the lines, which are in order, is among those from a first to a last."""
    at = bisect_left(lines, first)
    return at < len(lines) and lines[at] <= last


class _Walk:
    """A walk that fills a tree, which does not hold it: without a circle it goes as soon as it is not used.

    Args:
        tree: what to fill.
        seen: the statements whose expressions are known.
    """

    def __init__(self, tree: Tree, seen: set[ast.AST]) -> None:
        self.tree = tree
        self.seen = seen

    def statements(self, lines: list[int]) -> None:
        """Go through all statements, and the expressions of those that hold one of these lines."""
        parents, within = self.tree.parents, self.tree.within
        todo: list[tuple[ast.AST, Scope]] = [(self.tree.module, self.tree.root)]
        while todo:
            node, scope = todo.pop()
            kind = type(node)
            binder = _BINDERS.get(kind)
            if binder is not None:
                binder(self, node, scope)
            inner = scope
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = self.tree.scopes[node] = Scope(node, scope)
                self.parameters(node, inner)
            if _any_between(lines, *self.header(node)):
                self.expressions(node, scope)
            for name in _INSIDE[kind]:
                for child in reversed(getattr(node, name)):
                    parents[child] = node
                    within[child] = inner
                    todo.append((child, inner))

    def more(self, lines: list[int]) -> None:
        """Go through the expressions of the statements that hold one of these lines."""
        for node in tuple(self.tree.within):
            if isinstance(node, ast.stmt) and _any_between(lines, *self.header(node)):
                self.expressions(node, self.tree.within[node])

    def header(self, node: ast.AST) -> tuple[int, int]:
        """The lines of a statement, less the statements that are part of it."""
        first: int = getattr(node, "lineno", 0)
        last: int = getattr(node, "end_lineno", 0) or first
        if _INSIDE[type(node)]:
            decorators = getattr(node, "decorator_list", ())
            if decorators:
                first = decorators[0].lineno
            body = getattr(node, "body", ())
            if body:
                last = body[0].lineno if first else 0  # a module has no header
        return first, last

    def expressions(self, statement: ast.AST, scope: Scope) -> None:
        """Go through the expressions of a statement, less the statements that are part of it."""
        if statement in self.seen:
            return
        self.seen.add(statement)
        tree = self.tree
        parents, within, nodes = tree.parents, tree.within, tree.nodes
        todo = [(statement, scope)]
        fields = _HEADER[type(statement)]
        while todo:  # in the order of the source: what is put there last comes first
            node, scope = todo.pop()
            nodes.append(node)
            inner = scope
            if node is not statement:
                kind = type(node)
                fields = _FIELDS[kind]
                binder = _BINDERS.get(kind)
                if binder is not None:
                    binder(self, node, scope)
                if kind in _OPENING:
                    inner = tree.scopes[node] = Scope(node, scope)
                    self.parameters(node, inner)
            for name in fields:
                value = getattr(node, name)
                if value is None:
                    continue
                # The parameters of a lambda are bound inside it, but their defaults belong around it.
                into = scope if name == "args" and inner is not scope else inner
                for child in reversed(value) if isinstance(value, list) else (value,):
                    if isinstance(child, ast.AST):
                        parents[child] = node
                        within[child] = into
                        todo.append((child, into))

    def in_string(self, string: ast.JoinedStr, scope: Scope) -> None:
        for node in ast.walk(string):
            if node is not string:
                self.tree.strings.setdefault(node, string)

    def add(self, scope: Scope, name: str, binding: Binding) -> None:
        target = self.tree.root if name in scope.elsewhere and scope.parent else scope
        target.bindings.setdefault(name, []).append(binding)
        self.tree.bound += 1

    def target(self, target: ast.expr, node: ast.AST, value: ast.expr | None, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            self.add(scope, target.id, Binding(node, value))
        elif isinstance(target, ast.Attribute):
            path = dotted(target)
            if path is not None:
                self.tree.attributes.setdefault(path, []).append(Binding(node, value))
                self.tree.bound += 1
        elif isinstance(target, ast.Starred):
            self.target(target.value, node, None, scope)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values: list[ast.expr | None] = [None] * len(target.elts)
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                if not any(isinstance(each, ast.Starred) for each in (*target.elts, *value.elts)):
                    values = list(value.elts)
            for each, its in zip(target.elts, values, strict=True):
                self.target(each, node, its, scope)

    def parameters(self, node: ast.AST, scope: Scope) -> None:
        if not isinstance(node, FUNCTIONS):
            return
        arguments = node.args
        for arg, default in with_defaults(arguments):
            self.add(scope, arg.arg, Binding(arg, parameter=True, default=default))
        for extra in (arguments.vararg, arguments.kwarg):
            if extra is not None:
                self.add(scope, extra.arg, Binding(extra, parameter=True))

    def name(self, node: ast.Name, scope: Scope) -> None:
        if isinstance(node.ctx, ast.Load):
            self.tree.loads.add(node.id)

    def assign(self, node: ast.Assign, scope: Scope) -> None:
        for target in node.targets:
            self.target(target, node, node.value, scope)

    def annotated(self, node: ast.AnnAssign, scope: Scope) -> None:
        self.target(node.target, node, node.value, scope)

    def augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        self.target(node.target, node, None, scope)

    def walrus(self, node: ast.NamedExpr, scope: Scope) -> None:
        while isinstance(scope.node, COMPREHENSIONS) and scope.parent is not None:
            scope = scope.parent
        self.target(node.target, node, node.value, scope)

    def loop(self, node: ast.For | ast.AsyncFor | ast.comprehension, scope: Scope) -> None:
        self.target(node.target, node, None, scope)

    def context(self, node: ast.withitem, scope: Scope) -> None:
        if node.optional_vars is not None:
            self.target(node.optional_vars, node, None, scope)

    def handler(self, node: ast.ExceptHandler, scope: Scope) -> None:
        if node.name:
            self.add(scope, node.name, Binding(node))

    def definition(self, node: ast.FunctionDef | ast.ClassDef, scope: Scope) -> None:
        self.add(scope, node.name, Binding(node))

    def declaration(self, node: ast.Global | ast.Nonlocal, scope: Scope) -> None:
        scope.elsewhere.update(node.names)
        self.tree.declared_elsewhere.update(node.names)

    def imports(self, node: ast.Import, scope: Scope) -> None:
        self.tree.imports.append(node)
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self.add(scope, name, Binding(node, imported=alias.name if alias.asname else name))

    def imports_from(self, node: ast.ImportFrom, scope: Scope) -> None:
        self.tree.imports.append(node)
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.tree.star_imports.append(module)
                continue
            joint = "" if module.endswith(".") else "."
            name = alias.asname or alias.name
            self.add(scope, name, Binding(node, imported=f"{module}{joint}{alias.name}"))

    def capture(self, node: ast.MatchAs | ast.MatchStar, scope: Scope) -> None:
        if node.name:
            self.add(scope, node.name, Binding(node))

    def delete(self, node: ast.Delete, scope: Scope) -> None:
        for target in node.targets:
            self.target(target, node, None, scope)


_BINDERS: dict[type[ast.AST], Callable[[_Walk, Any, Scope], None]] = {
    ast.Name: _Walk.name,
    ast.JoinedStr: _Walk.in_string,
    ast.Assign: _Walk.assign,
    ast.AnnAssign: _Walk.annotated,
    ast.AugAssign: _Walk.augmented,
    ast.NamedExpr: _Walk.walrus,
    ast.For: _Walk.loop,
    ast.AsyncFor: _Walk.loop,
    ast.comprehension: _Walk.loop,
    ast.withitem: _Walk.context,
    ast.ExceptHandler: _Walk.handler,
    ast.FunctionDef: _Walk.definition,
    ast.AsyncFunctionDef: _Walk.definition,
    ast.ClassDef: _Walk.definition,
    ast.Global: _Walk.declaration,
    ast.Nonlocal: _Walk.declaration,
    ast.Import: _Walk.imports,
    ast.ImportFrom: _Walk.imports_from,
    ast.MatchAs: _Walk.capture,
    ast.MatchStar: _Walk.capture,
    ast.Delete: _Walk.delete,
}
