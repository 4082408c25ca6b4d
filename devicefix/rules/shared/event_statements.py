"""The statements of streams and events that go under a guard as a whole: where they are made."""

from __future__ import annotations

import ast
from collections.abc import Callable

from devicefix.devices.context import Context
from devicefix.facts import Scope
from devicefix.facts.effects import has_effects
from devicefix.rewrite.lines import alone

_EVALUATE = ("exec", "eval")  # they may read any variable


class EventStatements:
    """The statements that use streams and events, and nothing else of the program.

    Args:
        context: the context of the module.
        is_known: whether an expression holds a stream or event all of whose uses are fixed.
        method_of: returns the call of a method that an expression is the receiver or an argument of.
    """

    def __init__(
        self,
        context: Context,
        is_known: Callable[[ast.expr], bool],
        method_of: Callable[[ast.expr], ast.Call | None],
    ) -> None:
        self.context = context
        self.facts = context.facts
        self._is_known = is_known
        self._method_of = method_of

    def making(self, maker: ast.expr) -> ast.Assign | None:
        """Return the statement that makes a stream or event, if the guard of a statement beside it serves both.

        All that reads its variables is evaluated only with CUDA, once it is fixed.
        """
        statement = self.facts.tree.statement(maker)
        if not isinstance(statement, ast.Assign) or not self._is_making(statement):
            return None
        return statement if any(map(self._goes_under_guard, self._beside(statement))) else None

    def _beside(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the statements above and below one, in its block."""
        block = self.facts.tree.block(statement)
        at = block.index(statement)
        return [*block[max(at - 1, 0) : at], *block[at + 1 : at + 2]]

    def _goes_under_guard(self, statement: ast.stmt) -> bool:
        """Return whether a statement makes a stream or event, or calls a method of one and nothing else."""
        match statement:
            case ast.Assign():
                return self._is_making(statement)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=receiver), args=args)):
                return alone(self.context.source, statement) and any(map(self._is_known, (receiver, *args)))
        return False

    def _is_making(self, statement: ast.Assign) -> bool:
        """Return whether an assignment only makes streams or events that are only used with CUDA."""
        match statement:
            case ast.Assign(targets=[ast.Name() as name], value=value):
                pairs: list[tuple[ast.expr, ast.expr]] = [(name, value)]
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = list(zip(names, values, strict=False)) if len(names) == len(values) else []
            case _:
                return False
        makes = all(isinstance(value, ast.Call) and self._is_known(value) for _, value in pairs)
        if not pairs or not makes or self.facts.is_guarded(statement):
            return False
        if any(has_effects(self.facts, value) for _, value in pairs):
            return False
        return alone(self.context.source, statement) and all(self._is_only_used(name) for name, _ in pairs)

    def _is_only_used(self, target: ast.expr) -> bool:
        """Return whether a variable has one value, and only methods of it are called."""
        scope = self._scope(target)
        if scope is None or not isinstance(target, ast.Name) or len(scope.bindings[target.id]) != 1:
            return False
        reads = self.facts.reads_in(scope, target.id)
        return all(self.facts.is_guarded(read) or self._is_called(read) for read in reads)

    def _scope(self, target: ast.expr) -> Scope | None:
        """Return the scope that binds a variable, None where something may read it unseen."""
        scope = self.facts.tree.scope(target)
        if not isinstance(target, ast.Name) or scope.is_class or target.id not in scope.bindings:
            return None
        if target.id in self.facts.tree.declared_elsewhere:
            return None
        return None if any(map(self.facts.tree.reads, _EVALUATE)) else scope

    def _is_called(self, read: ast.expr) -> bool:
        return self._is_known(read) and self._method_of(read) is not None
