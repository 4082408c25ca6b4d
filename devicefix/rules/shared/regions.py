"""The code that depends on the answer to whether there is CUDA, or to how many GPUs there are."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from devicefix.devices.accelerator import Accelerator
from devicefix.devices.context import Context
from devicefix.facts import returns
from devicefix.facts.flow.sinks import LOADS
from devicefix.facts.flow.steps import Steps
from devicefix.facts.refusals import PRINTING
from devicefix.facts.values import last_name
from devicefix.rules.shared.guarded_moves import GuardedMoves

_DEPTH = 4  # variables to follow


class Regions:
    """The code that depends on the answers to questions in a module.

    Args:
        context: the context of the module.
        accelerator: the counterparts of torch.cuda.
        collapses: whether a guard that only moves something becomes a move.
    """

    def __init__(self, context: Context, accelerator: Accelerator, *, collapses: bool) -> None:
        self.facts = context.facts
        self.accelerator = accelerator
        self._moves = GuardedMoves(context)
        self._steps = Steps(context.facts)
        self._collapses = collapses

    def of(self, node: ast.expr, counts: bool, depth: int = _DEPTH) -> list[ast.AST] | None:
        """Return the code that depends on the answer to a question, or None if it is not known.

        Args:
            node: the question, or a variable that holds its answer.
            counts: whether the answer is a number of GPUs.
            depth: the number of variables to follow.
        """
        if depth == 0:
            return None
        tree = self.facts.tree
        around = self._of_cuda(node)
        if around is not None:
            return [around]
        answer, operands = self._answer(node)
        regions: Sequence[ast.AST] | None
        match parent := tree.parents.get(answer):
            case (
                ast.Assign(targets=[(ast.Name() | ast.Attribute()) as target])
                | ast.AnnAssign(target=(ast.Name() | ast.Attribute()) as target)
            ):
                regions = self._of_variable(target, parent, counts, depth)
            case ast.IfExp() | ast.If() | ast.While() if parent.test is answer:
                regions = self._of_test(parent)
            case ast.Assert():
                regions = self._following(parent)
            case ast.Expr() | ast.keyword(arg="pin_memory" | "enabled" | "non_blocking"):
                regions = []
            case ast.Call() if last_name(parent.func) in PRINTING:
                regions = []
            case ast.Call() if parent in getattr(tree.parents[parent], "decorator_list", ()):
                regions = [tree.parents[parent]]
            case _:
                regions = self._counted(answer) if counts and not _is_asked(node, answer) else None
        return None if regions is None else [*operands, *regions]

    def _of_cuda(self, node: ast.AST) -> ast.Call | None:
        """Return the call around a node that loads a checkpoint or is specific to CUDA, or None."""
        for _, parent in self.facts.tree.ancestors(node):
            if isinstance(parent, ast.stmt):
                break
            if isinstance(parent, ast.Call):
                if self.facts.call(parent, *LOADS):
                    return parent
                chosen = parent.func
                function = chosen.body if isinstance(chosen, ast.IfExp) else chosen
                if self.accelerator.reference(function) and not self.accelerator.counterpart(function):
                    return parent
        return None

    def _answer(self, node: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
        """Return the expression that gives the answer to a question, and the operands that depend on it."""
        operands: list[ast.expr] = []
        parent = self.facts.tree.parents.get(node)
        while isinstance(parent, (ast.UnaryOp, ast.BoolOp, ast.Compare)) or _keeps(parent):
            if isinstance(parent, ast.BoolOp):
                operands += parent.values[parent.values.index(node) + 1 :]
            assert isinstance(parent, ast.expr)
            node, parent = parent, self.facts.tree.parents.get(parent)
        return node, operands

    def _of_test(self, node: ast.IfExp | ast.If | ast.While) -> Sequence[ast.AST] | None:
        """Return the code that depends on the test of a node, or None if it is not known."""
        if isinstance(node, ast.While):
            return node.body
        return self._arms(node) if isinstance(node, ast.IfExp) else self._branches(node)

    def _arms(self, node: ast.IfExp) -> list[ast.expr]:
        """Return the arms of an expression that depend on its test."""
        if self._collapses and self._moves.of_choice(node) is not None:
            return []
        if self.facts.guards.implies(node.test):
            return [node.body]
        return [node.orelse] if self.facts.guards.implies(node.test, False) else [node.body, node.orelse]

    def _branches(self, node: ast.If) -> Sequence[ast.stmt] | None:
        """Return the statements that depend on the test of an `if`, or None if they are not known."""
        guards = self.facts.guards
        if guards.refusal(node) is not None:
            return self._following(node)
        if self._collapses and self._moves.of_guard(node) is not None:
            return []
        if guards.implies(node.test):
            return node.body
        if not guards.implies(node.test, False):
            return [*node.body, *node.orelse]
        if returns(node.body):
            return [*node.orelse, *self._following(node)]
        return node.orelse or None

    def _following(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the statements below one in its block."""
        block = self.facts.tree.block(statement)
        return block[block.index(statement) + 1 :]

    def _counted(self, node: ast.expr) -> list[ast.AST]:
        """Return the code that depends on a number of GPUs: the statement, and the body of a loop."""
        statement = self.facts.tree.statement(node)
        if isinstance(statement, (ast.For, ast.AsyncFor)):
            return [statement]
        bodies = ("body", "orelse", "finalbody", "handlers")
        inside = [part for name in bodies for part in getattr(statement, name, ())]
        return [part for part in ast.iter_child_nodes(statement) if part not in inside]

    def _of_variable(
        self, target: ast.Name | ast.Attribute, statement: ast.stmt, counts: bool, depth: int
    ) -> list[ast.AST] | None:
        """Return the code that depends on a variable that holds an answer, or None if it is not known."""
        variable = self._steps.variable(target)
        reads = [read for read in variable.reads if self.facts.tree.statement(read) is not statement]
        found = [self.of(read, counts, depth - 1) for read in reads]
        if len(variable.bindings) != 1 or self._steps.is_shared(variable) or None in found:
            return None
        return [region for regions in found for region in regions or ()]


def _is_asked(number: ast.expr, answer: ast.expr) -> bool:
    """Return whether the answer to a question about a number is true or false."""
    return (
        any(isinstance(each, (ast.Compare, ast.BoolOp)) for each in ast.walk(answer)) and answer is not number
    )


def _keeps(node: ast.AST | None) -> bool:
    """Return whether a node is a call that preserves an answer, such as `bool(...)`."""
    return isinstance(node, ast.Call) and last_name(node.func) in ("bool", "int", "max", "min")
