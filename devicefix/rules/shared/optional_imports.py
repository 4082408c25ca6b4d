"""Optional imports, and uses of their names that don't check whether the import succeeded."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from devicefix.facts import Binding, Facts, returns
from devicefix.facts.flow.parameters import reads_of
from devicefix.facts.path_conditions import conditions_on
from devicefix.facts.refusals import caught
from devicefix.facts.scopes import DEFINITIONS, bound_names
from devicefix.facts.tree import TRIES, walk
from devicefix.facts.values import is_constant, last_name
from devicefix.rules.shared.library_facts import FAILING

_CALLS = 3  # how many functions to follow to their callers
_BINDINGS = 4  # how many flags to follow to what they are made of
_TESTING = (ast.If, ast.IfExp, ast.While)


class OptionalImports:
    """The imports of one module that may fail without an error.

    Args:
        facts: the facts of the module.
        imports: the statements that import such a library.
    """

    def __init__(self, facts: Facts, imports: Collection[ast.stmt]) -> None:
        self.facts = facts
        self.tree = facts.tree
        self.imports = imports

    def unasked(self, statement: ast.Import | ast.ImportFrom, library: str) -> Iterator[ast.expr]:
        """Yield the uses of what an import binds that fail where the library is missing.

        A use asks if it depends on a flag that is set next to the import, on what the import binds, or on a value
        that names the library: a person who asks for it gets an error.

        Args:
            statement: the import, in a `try` or under an `if`.
            library: the library.
        """
        place = self._place(statement)
        if place is None:
            return
        flags = _bound_in(place)
        if isinstance(place, _TESTING):
            flags |= {node.id for node in walk(place.test) if isinstance(node, ast.Name)} - {"torch"}
        asking = Asking(self.facts, library, flags)
        inside = set(walk(place))
        for name, uses in self._bound_by(statement):
            bindings = self.tree.scope(statement).bindings.get(name, [])
            if not any(map(self._replaces, bindings)):
                bound = len(bindings) > 1
                for use in uses:
                    if use not in inside and self._fails(use, bound=bound) and not asking.before(use):
                        yield use

    def _bound_by(self, statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Sequence[ast.expr]]]:
        """Yield the names that an import binds, each with its reads."""
        scope = self.tree.scope(statement)
        for name in bound_names(statement):
            yield name, self.facts.reads_in(scope, name)

    def without_cuda(self, statement: ast.Import | ast.ImportFrom, library: str) -> Iterator[ast.expr]:
        """Yield the calls of a library's functions that fail on a CPU, and that only ask whether it is installed.

        Args:
            statement: the import, in a `try`.
            library: the library.
        """
        place = self._place(statement)
        failing = FAILING.get(library.partition(".")[0], ())
        if not isinstance(place, TRIES) or not failing:
            return
        asking = Installed(self.facts, library, _bound_in(place))
        for use in (use for _, uses in self._bound_by(statement) for use in uses):
            function = use
            while isinstance(parent := self.tree.parents.get(function), ast.Attribute):
                function = parent
            called = (self.facts.resolve(function) or last_name(function)).rpartition(".")[2]
            if self.tree.call_of(function) and called in failing and not asking.before(use):
                yield function

    def is_checked(self, statement: ast.stmt) -> bool:
        """Return whether an import is under an `if`, and not in a `try` statement."""
        return isinstance(self._place(statement), ast.If)

    def flag(self, statement: ast.stmt) -> ast.expr | None:
        """Return the `True` to which a flag is set where an import succeeds, None if there is no flag."""
        place = self._place(statement)
        for each in place.body if isinstance(place, TRIES) else ():
            match each:
                case ast.Assign(targets=[ast.Name()], value=ast.Constant(value=True) as value):
                    return value
        return None

    def _replaces(self, binding: Binding) -> bool:
        """Return whether a binding is a replacement of the library: something other than None."""
        value = binding.value
        if value is None and isinstance(binding.node, ast.Assign):
            value = binding.node.value  # `a, b = None` and `a, b = None, None, None` are errors
        return not _is_none(value) and binding.node not in self.imports

    def _place(self, statement: ast.stmt) -> ast.stmt | None:
        """Return the statement that makes an import optional."""
        for child, parent in self.tree.ancestors(statement):
            match parent:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    return None
                case ast.If(test=test):
                    return None if for_types(test) else parent
                case ast.With():
                    return parent
                case ast.stmt() if isinstance(parent, TRIES) and child in parent.body:
                    return parent if any(map(self._goes_on, parent.handlers)) else None
        return None

    def _goes_on(self, handler: ast.ExceptHandler) -> bool:
        return not (returns(handler.body) or self.facts.guards.refusals.refuses(handler.body))

    def _fails(self, use: ast.expr, *, bound: bool) -> bool:
        """Return whether a use is an error where the library is missing: its name is None, or not bound."""
        if self._is_annotation(use):
            return False
        parent = self.tree.parents.get(use)
        match parent:
            case ast.Attribute() | ast.Subscript():
                return parent.value is use or not bound
            case ast.Call():
                return parent.func is use or not bound
        return not bound or use in (*getattr(parent, "decorator_list", ()), *getattr(parent, "bases", ()))

    def _is_annotation(self, use: ast.expr) -> bool:
        """Return whether a use is part of an annotation that is never evaluated."""
        imported = self.tree.root.bindings.get("annotations", ())
        return any(each.imported == "__future__.annotations" for each in imported) and any(
            child in (getattr(parent, "annotation", None), getattr(parent, "returns", None))
            for child, parent in self.tree.ancestors(use)
        )


class Asking:
    """The code of one module that runs only after a question for a library.

    Args:
        facts: the facts of the module.
        library: the library.
        flags: the names that are set by whether it is there.
    """

    def __init__(self, facts: Facts, library: str, flags: Collection[str] = ()) -> None:
        self.facts = facts
        self.tree = facts.tree
        self.flags = flags
        name = "flash" if "flash" in library else re.escape(library.partition(".")[0])
        self.library = re.compile(name, re.I)
        self.known: dict[ast.AST, bool] = {}

    def before(self, use: ast.AST, calls: int = _CALLS) -> bool:
        """Return whether a question decides whether a use is reached."""
        if self.facts.is_guarded(use):
            return True
        for child, parent in self.tree.ancestors(use):
            if self._decides(child, parent) or self._left_before(child):
                return True
            if isinstance(parent, DEFINITIONS) and child in parent.body:
                if self._is_refused(parent) or (calls and self._only_called_if_asked(parent, calls - 1)):
                    return True
        return False

    def _is_refused(self, method: ast.AST) -> bool:
        """Return whether the class of a method can't be made without the library."""
        body = getattr(self.tree.parents[method], "body", ())
        made = (each.body for each in body if getattr(each, "name", "") == "__init__" and each is not method)
        refuses = self.facts.guards.refusals.refuses
        asked = (each for each in chain(*made) if isinstance(each, ast.If) and self.asks(each.test))
        return any(refuses(each.body) or refuses(each.orelse) for each in asked)

    def _decides(self, child: ast.AST, parent: ast.AST) -> bool:
        """Return whether a parent asks for the library before it evaluates a child, or handles its absence."""
        match parent:
            case ast.Match(subject=subject):
                return child is not subject and self.asks(subject)
            case ast.Dict(keys=keys, values=values) if child in values:
                key = keys[values.index(child)]
                return key is not None and self.asks(key)
        if isinstance(parent, TRIES) and child in parent.body:
            return any(map(self._handles, parent.handlers))
        return any(self.asks(test) for test, _ in conditions_on(child, parent))

    def _handles(self, handler: ast.ExceptHandler) -> bool:
        """Return whether a handler is for a library that is missing, or continues without it."""
        return _is_of_missing_name(handler) or not self.facts.guards.refusals.refuses(handler.body)

    def _left_before(self, child: ast.AST) -> bool:
        """Return whether an earlier statement of the block leaves it where the library is missing."""
        if not isinstance(child, ast.stmt):
            return False
        block = self.tree.block(child)
        return any(map(self._leaves, block[: block.index(child)])) if child in block else False

    def _leaves(self, statement: ast.stmt) -> bool:
        match statement:
            case ast.Assert(test=test):
                return self.asks(test)
            case ast.If(test=test, body=body, orelse=orelse) if self.asks(test):
                refuses = self.facts.guards.refusals.refuses
                return any(returns(block) or refuses(block) for block in (body, orelse))
        return isinstance(statement, TRIES) and any(map(_is_of_missing_name, statement.handlers))

    def _only_called_if_asked(self, definition: ast.AST, calls: int) -> bool:
        """Return whether a function or class is used, and only where a question decides."""
        if definition not in self.known:
            self.known[definition] = False  # also for what calls itself
            uses = reads_of(self.tree, definition)
            self.known[definition] = bool(uses) and all(self.before(use, calls) for use in uses)
        return self.known[definition]

    def asks(self, test: ast.expr, depth: int = _BINDINGS) -> bool:
        """Return whether a test depends on a flag, or on a value that names the library and is not the default."""
        return any(self._asks_by(node, depth) for node in walk(test))

    def _asks_by(self, node: ast.AST, depth: int) -> bool:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                if name in self.flags or (depth and self._is_set_by_question(node, depth - 1)):
                    return True
                return self.library.search(name) is not None
            case ast.Constant(value=str(text)):
                return self._chooses(text) or self.library.search(text) is not None
        return False

    def _chooses(self, text: str) -> bool:
        """Return whether a text is the name of an import, as `fused_adam` of `FusedAdam`, and not the default."""
        if re.sub(r"[-_ ]", "", text).lower() not in map(str.lower, self.flags):
            return False
        texts = (node for node in self.tree.nodes_with(text) if is_constant(node, text))
        parents = map(self.tree.parents.get, texts)
        return not any(
            isinstance(parent, ast.arguments)
            or (isinstance(parent, ast.keyword) and parent.arg == "default")
            or isinstance(parent, (ast.Assign, ast.AnnAssign, ast.Dict))
            for parent in parents
        )

    def _is_set_by_question(self, node: ast.Name | ast.Attribute, depth: int) -> bool:
        """Return whether the value of a flag, or whether it is set, depends on the library."""
        for binding in self.facts.bindings(node):
            tests = (parent.test for parent in self.tree.around(binding.node, ast.If))
            values = [] if binding.value is None else [binding.value]
            if any(self.asks(value, depth) for value in (*values, *tests)):
                return True
        return False


class Installed(Asking):
    """The code of one module that runs only after another question than whether a library is installed.

    That is a test of a value that names the library, and is not always on.
    """

    def _asks_by(self, node: ast.AST, depth: int) -> bool:
        if isinstance(node, (ast.Name, ast.Attribute)):
            if last_name(node) in self.flags or self._is_on(node):
                return False
        return super()._asks_by(node, depth)

    def _is_on(self, node: ast.Name | ast.Attribute) -> bool:
        """Return whether a flag is true unless a caller says otherwise."""
        bindings = self.tree.bound(node) or self.facts.bindings(node)
        values = [binding.default if binding.parameter else binding.value for binding in bindings]
        return bool(values) and all(is_constant(value, True) for value in values)


def _is_none(value: ast.expr | None) -> bool:
    """Return whether a value is None, or a tuple of nothing else."""
    if isinstance(value, (ast.Tuple, ast.List)):
        return bool(value.elts) and all(map(_is_none, value.elts))
    return is_constant(value, None)


def for_types(test: ast.expr) -> bool:
    """Return whether a test is only true for a type checker: `typing.TYPE_CHECKING`."""
    return last_name(test) == "TYPE_CHECKING"


def _is_of_missing_name(handler: ast.ExceptHandler) -> bool:
    return NameError.__name__ in caught(handler)


def _bound_in(place: ast.stmt) -> set[str]:
    """Return the names and attributes that a statement and those in it bind."""
    nodes = list(walk(place))
    parts = (node for node in nodes if isinstance(node, ast.Attribute))
    attributes = {each.attr for each in parts if isinstance(each.ctx, ast.Store)}
    return attributes.union(*map(bound_names, nodes))
