"""Do some statements let low precision meet float32, without autocast?"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from devicefix.facts.precision.calls import Calls
from devicefix.facts.precision.expressions import STEPS
from devicefix.facts.precision.tables import AUTOCASTS
from devicefix.facts.precision.values import Given, Module, Value
from devicefix.facts.tree import children


class Precision(Calls):
    """The types of tensors and modules in one module.

    Args:
        facts: The module's names.
        is_mixing: Whether a call of an imported class's instances lets two types meet.
    """

    def meets(self, statements: Sequence[ast.stmt]) -> bool:
        """Return whether some statements of a function, or of the module, show an operation on two types."""
        return self._asks(lambda: self._run(statements, self._of_self(statements[0])))

    def value(self, node: ast.expr) -> Value | None:
        """Return the value of an expression where it is, as far as it is known."""
        self._asks(lambda: None)
        return self.of(node, self._of_self(node))

    def _of_self(self, node: ast.AST) -> Given:
        """Return the object of a method that a node is in."""
        owner = self._tree.parents.get(self._tree.scope(node).node)
        return {"self": Module(definition=owner)} if isinstance(owner, ast.ClassDef) else {}

    def mixing_classes(self) -> Iterator[str]:
        """Yield the classes of modules in which two types meet, whatever their methods are given."""
        for node in self._tree.scopes:
            if isinstance(node, ast.ClassDef) and self._tree.parents.get(node) is self._tree.module:
                module = Module(definition=node)
                if self._asks(partial(self._forward, module, ())):
                    yield node.name

    def _asks(self, question: Callable[[], object]) -> bool:
        self._steps = self._depth = 0
        self._found = False
        self._known.clear()
        question()
        return self._found

    def _run(self, statements: Iterable[ast.stmt], given: Given) -> None:
        """Look at what statements evaluate without CUDA."""
        for statement in statements:
            for block in self._blocks(statement):
                self._run(block, given)
            if isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return)):
                if statement.value is not None:
                    self._evaluated(statement.value, given)
            if self._found or self._steps > STEPS:
                return

    def _blocks(self, statement: ast.stmt) -> Iterator[list[ast.stmt]]:
        """Yield the blocks of a statement that may run without CUDA, and in the same precision."""
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            if not any(self._is_autocast(item.context_expr) for item in statement.items):
                yield statement.body
        elif isinstance(statement, (ast.For, ast.AsyncFor, ast.While, ast.Try)):
            yield statement.body
        elif isinstance(statement, ast.If):
            for block in filter(None, (statement.body, statement.orelse)):
                if not self._facts.is_guarded(block[0]):
                    yield block

    def _evaluated(self, node: ast.AST, given: Given) -> None:
        """Look at the operations in an expression."""
        if isinstance(node, (ast.Call, ast.BinOp)):
            self.of(node, given)
        if not isinstance(node, (ast.Lambda, ast.IfExp, ast.BoolOp)):
            for part in children(node):
                self._evaluated(part, given)

    def _is_autocast(self, node: ast.expr) -> bool:
        """Return whether a context may be an autocast of its own."""
        return not isinstance(node, ast.Call) or self._facts.call(node, *AUTOCASTS)
