"""Checks after which the number of GPUs is at least 1: the program ends where it is 0."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from devicefix.devices.context import Context
from devicefix.facts import of_any_count
from devicefix.model import Edit
from devicefix.rewrite.blocks import remove, without_branch
from devicefix.rules.shared.refusals import Refusals


class Refused:
    """The numbers of GPUs in one module that the program refuses to be 0.

    Args:
        context: the context of the module.
    """

    def __init__(self, context: Context) -> None:
        self.facts = context.facts
        self._refusals = Refusals(context)

    def checks(self, count: ast.expr) -> Iterator[tuple[ast.stmt, tuple[Edit, ...]]]:
        """Yield the checks that always end the program where a number is 0, and the edits that remove them.

        They follow the assignment of the number to a name, in the same block, and nothing catches their error. So
        the program has no path for 0, and is the same with 1 as on a machine with one GPU.

        Args:
            count: the call that returns the number.
        """
        statement = self.facts.tree.parents.get(count)
        if not (isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is count):
            return
        block = self.facts.tree.block(statement)
        for check in self._checks.get(count, ()):
            if check.lineno < statement.lineno or self.facts.tree.block(check) is not block:
                continue
            if isinstance(check, ast.Assert) and self._with_gpus(check.test, count):
                if self._is_needless(check, count, AssertionError.__name__):
                    yield check, (remove(self.facts, check),)
            elif isinstance(check, ast.If):
                branch = self._without_gpus(check, count)
                last = self.facts.guards.refusals.last(branch)
                error = self.facts.guards.refusals.error_of(last)
                if last is not None and self._is_needless(check, count, error):
                    yield check, without_branch(self.facts, check, branch)

    @cached_property
    def _checks(self) -> dict[ast.expr, list[ast.Assert | ast.If]]:
        """The statements that test a number by itself, by the call that returns it."""
        found: dict[ast.expr, list[ast.Assert | ast.If]] = {}
        for node in self.facts.tree.nodes_with("assert", "if"):
            if isinstance(node, (ast.Assert, ast.If)) and (number := self._tested(node.test)) is not None:
                found.setdefault(number, []).append(node)
        return found

    def _tested(self, test: ast.expr) -> ast.expr | None:
        """Return the value that a test compares, or asks for."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._tested(operand)
            case ast.Compare(left=tested) | (ast.Name() | ast.Attribute() as tested):
                return self.facts.value(tested)
        return None

    def _without_gpus(self, check: ast.If, count: ast.expr) -> list[ast.stmt]:
        """Return the branch that runs where a number is 0, and only there; it is empty if there is none."""
        answer = self._with_gpus(check.test, count)
        if answer is None:
            return []
        return check.orelse if answer else check.body

    def _with_gpus(self, test: ast.expr, count: ast.expr) -> bool | None:
        """Return what a test of a number is for every number but 0, None where that depends on the number."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                answer = self._with_gpus(operand, count)
                return None if answer is None else not answer
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=int(value))]):
                return of_any_count(op, value) if self.facts.value(left) is count else None
            case ast.Name() | ast.Attribute():
                return True if self.facts.value(test) is count else None
        return None

    def _is_needless(self, check: ast.stmt, count: ast.expr, error: str | None) -> bool:
        """Return whether a check ends every run without CUDA, whatever the user asks for."""
        verdict = self._refusals.verdict(check, (count, False), error)
        return verdict is not None and verdict.removable and not verdict.why
