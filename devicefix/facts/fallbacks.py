"""Handlers that are the program's own path without CUDA: they catch the error that CUDA's functions raise."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from weakref import proxy

from devicefix.facts.names import Names
from devicefix.facts.refusals import TRIES, Refusals, continues, may_catch, suppresses
from devicefix.facts.scopes import FUNCTIONS, Scope, dotted
from devicefix.facts.values import last_name

# What torch raises without CUDA, by `torch.cuda._lazy_init`: in builds without CUDA, and without a GPU.
_ERRORS = (AssertionError.__name__, RuntimeError.__name__)
_CALLS = 3  # how many functions to follow to their callers
_LEAVING = (ast.Return, ast.Break, ast.Continue)


@dataclass(frozen=True, slots=True)
class Fallback:
    """A path that a program takes if CUDA fails.

    Attributes:
        line: the line of its handler.
        certain: whether it serves every machine without CUDA: it catches each error, and gives the CPU to
            what the code with CUDA gives a GPU.
    """

    line: int
    certain: bool


class Fallbacks:
    """The paths of a module without CUDA.

    Args:
        facts: the names of the module.
        refusals: its refusals.
    """

    def __init__(self, facts: Names, refusals: Refusals) -> None:
        self._facts: Names = proxy(facts)
        self._refusals = refusals
        self._any = any(
            word in facts.source.text for word in ("except", "suppress", "raises", "assertRaises")
        )
        self._known: dict[tuple[ast.AST, str | None], Fallback | None] = {}
        self._callers: dict[ast.AST, Fallback | None] = {}
        self._readers: dict[tuple[Scope, str], Fallback | None] = {}

    def of(self, node: ast.AST) -> Fallback | None:
        """Return the path that the program takes if CUDA fails at a node, None if that error ends it."""
        if not self._any or isinstance(node, ast.Module):  # rules that search the whole module ask themselves
            return None
        return self._around(node) or self._of_callers(node, _CALLS) or self._of_reads(node)

    def _around(self, node: ast.AST, also: str | None = None) -> Fallback | None:
        """Return the path that the function of a node takes.

        Args:
            node: the node that raises the error.
            also: return only a path that gives another value to this name; to any name if empty.
        """
        found, passed = None, []
        for child, parent in takewhile(
            lambda pair: not self._runs_later(pair[1]), self._facts.tree.ancestors(node)
        ):
            if (child, also) in self._known:
                found = self._known[child, also]
                break
            passed.append(child)
            found = self._of_parent(child, parent, also)
            if found is not None:
                break
        self._known.update(((child, also), found) for child in passed)
        return found

    def _runs_later(self, node: ast.AST) -> bool:
        """Return whether a node is a class or a function, but no lambda that is called at once."""
        if isinstance(node, ast.Lambda):
            call = self._facts.tree.parents.get(node)
            return not (isinstance(call, ast.Call) and call.func is node)
        return isinstance(node, (*FUNCTIONS, ast.ClassDef))

    def _of_parent(self, child: ast.AST, parent: ast.AST, also: str | None) -> Fallback | None:
        if isinstance(parent, TRIES) and child in parent.body:
            return self._of_try(parent, also)
        if isinstance(parent, (ast.With, ast.AsyncWith)) and any(map(suppresses, parent.items)):
            return Fallback(parent.lineno, certain=False) if also is None and _decides(parent.body) else None
        return None

    def _of_try(self, node: ast.Try, also: str | None) -> Fallback | None:
        block = [*node.body, *node.orelse]
        for handler in node.handlers:
            caught = [error for error in _ERRORS if may_catch(handler, error)]
            if not caught or self._fails(handler):
                continue
            shared = _results(handler.body) & ({also} if also else _results(block))
            if shared:
                certain = len(caught) == len(_ERRORS) and (_probes(block) or _gives_cpu(handler, shared))
                return Fallback(handler.lineno, certain)
            if also is None and (continues(handler.body) or _decides(block)):
                return Fallback(handler.lineno, certain=False)
        return None

    def _fails(self, handler: ast.ExceptHandler) -> bool:
        """Return whether a handler ends the program, or raises an error again, if only for some errors."""
        raises = any(isinstance(node, ast.Raise) for node in ast.walk(handler))
        return raises or self._refusals.refuses(handler.body)

    def _of_callers(self, node: ast.AST, calls: int) -> Fallback | None:
        """Return the path that the callers of a function take, or theirs."""
        parents = (parent for _, parent in self._facts.tree.ancestors(node))
        function = next(filter(self._runs_later, parents), None)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or not calls:
            return None
        if function not in self._callers:
            self._callers[function] = None  # a recursive function calls itself
            found = [
                self._around(call, also="") or self._of_callers(call, calls - 1)
                for call in self._facts.tree.nodes_with_name(function.name)
                if isinstance(call, ast.Call) and last_name(call.func) == function.name
            ]
            first = next(filter(None, found), None)
            certain = all(fallback is not None and fallback.certain for fallback in found)
            self._callers[function] = first and replace(first, certain=certain)
        return self._callers[function]

    def _of_reads(self, node: ast.AST) -> Fallback | None:
        """Return the path that gives another value to the variable that gets the value of a node."""
        statement = self._facts.tree.statement(node)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        for target in targets:
            name = dotted(target)
            if name is None:
                continue
            scope = self._facts.tree.scope(target)
            if (scope, name) not in self._readers:
                reads = [read for read in self._facts.tree.reads(name) if self._is_of(read, scope, name)]
                found = [self._around(read, also=name) for read in reads]
                first = next(filter(None, found), None)
                certain = all(fallback is not None and fallback.certain for fallback in found)
                self._readers[scope, name] = first and replace(first, certain=certain)
            if self._readers[scope, name] is not None:
                return self._readers[scope, name]
        return None

    def _is_of(self, read: ast.AST, scope: Scope, name: str) -> bool:
        """Return whether a name at a place is the variable that it is in a scope."""
        root = name.partition(".")[0]
        here, there = self._facts.tree.scope(read).lookup(root), scope.lookup(root)
        return here is None or there is None or here[0] is there[0]


def _probes(block: Sequence[ast.stmt]) -> bool:
    """Return whether all that a block computes is that it did not fail."""
    last = block[-1]
    return isinstance(last, (ast.Assign, ast.AnnAssign, ast.Return)) and isinstance(last.value, ast.Constant)


def _gives_cpu(handler: ast.ExceptHandler, shared: set[str]) -> bool:
    """Return whether a handler computes one of the results on the CPU."""
    return any(
        _names_cpu(node.value)
        for node in ast.walk(handler)
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return))
        and node.value
        and _results([node]) & shared
    )


def _names_cpu(value: ast.expr) -> bool:
    """Return whether an expression names the CPU, and not as one of two devices."""
    nodes = list(ast.walk(value))
    return not any(isinstance(node, ast.IfExp) for node in nodes) and any(
        (isinstance(node, ast.Attribute) and node.attr == "cpu")
        or (isinstance(node, ast.Constant) and node.value == "cpu")
        for node in nodes
    )


def _decides(block: Sequence[ast.stmt]) -> bool:
    """Return whether a block ends by a result: then one without it has another."""
    return isinstance(block[-1], _LEAVING) or _probes(block)


def _results(block: Iterable[ast.stmt]) -> set[str]:
    """Return the paths that a block assigns, and `return` if it returns."""
    found: set[str] = set()
    for statement in block:
        match statement:
            case ast.Assign(targets=targets):
                for target in targets:
                    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
                    found |= {dotted(part) or ast.unparse(part) for part in parts}
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                found.add(dotted(target) or ast.unparse(target))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Return():
                found.add("return")
            case ast.If(body=body, orelse=orelse):
                found |= _results([*body, *orelse])
            case ast.With(body=body) | ast.For(body=body) | ast.While(body=body):
                found |= _results(body)
    return found
