"""Find the conditions with the same value on every machine with CUDA, and the refusals to run without it."""

from __future__ import annotations

import ast
from abc import ABC

from devicefix.facts.guards.answers import ASKS, COUNTS
from devicefix.facts.guards.conditions import Conditions
from devicefix.facts.guards.truth import of_any_count, of_truth, truth
from devicefix.facts.refusals import returns


class Decided(Conditions, ABC):
    """The tests of one module whose value CUDA decides."""

    def settled(self, test: ast.expr) -> bool | None:
        """Return the value of a test on every machine with CUDA, None where it depends on more."""
        return truth(test, self._with_cuda)

    def _with_cuda(self, part: ast.expr) -> bool | None:
        match part:
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=bool(value))]):
                return of_truth(op, self.settled(left), value)
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=int(value))]):
                # Of a variable it may depend on more: what is refused here would be 0 later.
                return of_any_count(op, value) if self.facts.call(left, *COUNTS) else None
            case ast.Call():
                return True if self.facts.call(part, *ASKS, *COUNTS) else None
            case ast.Name():
                bound = self.facts.value(part)
                return self.settled(bound) if isinstance(bound, ast.Call) else None
        return None

    def conditions(self, test: ast.expr) -> list[ast.expr]:
        """Return the parts of a test that may be true or false on a machine with CUDA."""
        if self.settled(test) is not None and not isinstance(test, (ast.BoolOp, ast.UnaryOp)):
            return []
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.conditions(operand)
            case ast.BoolOp(values=values):
                return [part for value in values for part in self.conditions(value)]
        return [test]

    def refusal(self, node: ast.If) -> list[ast.stmt] | None:
        """Return the statements that end the program without CUDA, and never run with it.

        They are a branch of the `if`, or what follows it where its body leaves the block:
        `if torch.cuda.is_available(): return x.cuda()` and then `raise RuntimeError`.
        """
        answer = self.settled(node.test)
        if answer is None:
            return None
        branch = node.orelse if answer else node.body
        if answer and not branch and returns(node.body):
            block = self.facts.tree.block(node)
            branch = block[block.index(node) + 1 :]
        last = self.refusals.last(branch)
        if last is None or self.refusals.both(node):
            return None
        return None if self.fallbacks.of(node, self.refusals.error_of(last)) else branch
