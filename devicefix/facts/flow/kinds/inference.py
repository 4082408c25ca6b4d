"""Define what the parts of the inference of kinds share: limits, earlier answers and recursion."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from weakref import proxy

from devicefix.facts.flow.kinds.kind import UNKNOWN, Kinds, of_names
from devicefix.facts.guards import Guards
from devicefix.facts.names import Names
from devicefix.facts.scopes import Binding, Function

DEPTH = 6  # how many bindings to follow from one name to the next
STEPS = 500  # expressions that one answer may look at
NESTED = 50  # how deeply they may nest


class Inference(ABC):
    """The inference of the kinds of the expressions of one module.

    Args:
        facts: the names of the module.
        guards: its guards.
    """

    def __init__(self, facts: Names, guards: Guards) -> None:
        self._facts: Names = proxy(facts)  # they hold us: a circle would keep the tree until it is collected
        self._guards = guards
        self._known: dict[tuple[object, int], Kinds] = {}
        self._asked: set[object] = set()  # the bindings that are being asked about
        self._assumed: set[object] = set()  # those of them that a circle led back to
        self._steps = self._nested = 0

    def of(self, node: ast.expr, depth: int = DEPTH) -> Kinds:
        """Return the kinds of value that an expression can have.

        Args:
            node: the expression.
            depth: how many bindings to follow.
        """
        return self._limited(self._of, node, depth)

    def _limited(self, infer: Callable[[ast.expr, int], Kinds], node: ast.expr, depth: int) -> Kinds:
        """Return the answer to a question about an expression: an earlier one, or within the limits."""
        if not self._nested:
            self._steps = 0
        key = (infer.__name__, node), depth
        if key in self._known:
            return self._known[key]
        if depth <= 0 or self._steps >= STEPS or self._nested >= NESTED:
            return UNKNOWN
        self._steps += 1
        self._nested += 1
        try:
            found = infer(node, depth)
        finally:
            self._nested -= 1
        if not self._assumed:
            self._known[key] = found
        return found

    def _elsewhere(self, node: ast.AST, name: str, part: str = "") -> Kinds | None:
        """Return the kinds of an import by its full name, None if the other files show nothing of it."""
        if name.startswith("torch."):
            return None
        found = self._facts.others.kinds_of(name, part)
        return of_names(found, node) if found else None

    def _of_result(self, call: ast.expr | None, part: str = "") -> Kinds | None:
        """Return the kinds of what a function of another file returns, or of a part of it."""
        name = self._facts.resolve(call.func) if isinstance(call, ast.Call) else None
        return None if call is None or name is None else self._elsewhere(call, f"{name}()", part)

    @abstractmethod
    def _of(self, node: ast.expr, depth: int) -> Kinds:
        """Return the kinds of an expression that were not asked for before."""

    @abstractmethod
    def elements(self, node: ast.expr, depth: int = DEPTH) -> Kinds:
        """Return the kinds of the elements of a collection, or of the values of a dictionary."""

    @abstractmethod
    def returned(self, function: Function, depth: int = DEPTH) -> Kinds:
        """Return the kinds of what a function of the module returns or yields."""

    @abstractmethod
    def _bound(self, site: ast.expr, path: str, bindings: Sequence[Binding], depth: int) -> Kinds:
        """Return the kinds of a name or attribute from those of its bindings that reach a site."""

    @abstractmethod
    def _parts(self, node: ast.expr, depth: int) -> Kinds:
        """Return the kinds of a value, or of the parts of a collection, as far as the module shows them."""

    def _is_builtin(self, name: ast.expr) -> bool:
        return isinstance(name, ast.Name) and self._facts.tree.scope(name).lookup(name.id) is None
