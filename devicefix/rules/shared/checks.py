"""Decide which checks no value on a CPU passes: of tensors, devices, backends and numbers of GPUs."""

from __future__ import annotations

import ast

from devicefix.devices.context import Context
from devicefix.facts.flow.kinds import Kind
from devicefix.facts.values import is_constant


class Checks:
    """The checks in one module."""

    def __init__(self, context: Context) -> None:
        self.facts = context.facts
        self._guards = context.facts.guards

    def is_false_on_a_cpu(self, test: ast.expr, truth: bool) -> bool:
        """Return whether a test can't be true (or false) for values on a CPU, if there are any."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.is_false_on_a_cpu(operand, not truth)
            case ast.Call(
                func=ast.Name(id="all" | "any" as name),
                args=[ast.GeneratorExp(elt=test) | ast.ListComp(elt=test)],
            ) if truth is (name == "all"):
                return self.is_false_on_a_cpu(test, truth)
        if truth and isinstance(test, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
            return self._guards.implies(test) or self.facts.kinds.of(test).can_be(Kind.FLAG) is True
        return self._guards.implies(test, truth) or (not truth and self._wants_more(test))

    def parts(self, test: ast.expr) -> tuple[ast.expr, list[ast.expr]] | None:
        """Return the part of `available and a` that is always true with CUDA, and the rest.

        None if there is no such part, or the rest is false without CUDA as well.
        """
        if not (isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)):
            return None
        gone = [value for value in test.values if self._guards.settled(value)]
        kept = [value for value in test.values if value not in gone]
        if not gone or any(self._guards.implies(value) or self.needs_gpus(value) for value in kept):
            return None
        return gone[0], kept

    def counts(self, test: ast.expr) -> bool:
        """Return whether a test compares with the number of GPUs."""
        sides = (test.left, *test.comparators) if isinstance(test, ast.Compare) else ()
        return any(map(self.facts.guards.counts_gpus, sides))

    def needs_gpus(self, test: ast.expr) -> bool:
        """Return whether a test compares with the number of GPUs, and may be false for 0."""
        is_other = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq)
        return self.counts(test) and not is_other and self._guards.without_cuda(test) is not True

    def _wants_more(self, test: ast.expr) -> bool:
        """Return whether a test is true where there are fewer GPUs than it names."""
        match test:
            case (
                ast.Compare(left=few, ops=[ast.Lt() | ast.NotEq()], comparators=[many])
                | ast.Compare(left=many, ops=[ast.Gt()], comparators=[few])
            ):
                return self._guards.counts_gpus(few) and not is_constant(many, 0)
        return False


def asks_tensor(test: ast.expr) -> bool:
    """Return whether a test asks a tensor if it is on a GPU."""
    return any(isinstance(part, ast.Attribute) and part.attr == "is_cuda" for part in ast.walk(test))
