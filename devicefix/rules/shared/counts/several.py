"""Comparisons that choose the code for several GPUs where there is none."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from devicefix.facts import Facts, returns
from devicefix.facts.tree import walk


class Several:
    """The choices between one GPU and several in one module.

    Args:
        facts: the facts of the module.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def is_chosen(self, compare: ast.Compare) -> bool:
        """Return whether `n == 1` being false chooses code that is for several GPUs.

        Code that asks for the number again, refuses, or mentions a CPU may also be for a machine without any.
        """
        other = self._where_not_one(compare)
        return bool(other) and not any(map(self._may_be_for_none, other)) and not self._is_shown(compare)

    def _where_not_one(self, compare: ast.Compare) -> Sequence[ast.AST]:
        """Return the code that runs if a number is not 1, as far as a choice says so."""
        parent = self.facts.tree.parents.get(compare)
        equal = isinstance(compare.ops[0], ast.Eq)
        match parent:
            case ast.IfExp(test=test, body=body, orelse=orelse) if test is compare:
                return [orelse if equal else body]
            case ast.If(test=test, body=body, orelse=orelse) if test is compare:
                if equal and not orelse and returns(body):
                    block = self.facts.tree.block(parent)
                    return block[block.index(parent) + 1 :]
                return orelse if equal else body if orelse else ()
        return ()

    def _may_be_for_none(self, code: ast.AST) -> bool:
        if isinstance(code, ast.Constant) and not code.value:
            return True
        if isinstance(code, ast.stmt) and self.facts.guards.refusals.refuses([code]):
            return True
        return any(self._mentions_none(node) for node in walk(code))

    def _mentions_none(self, node: ast.AST) -> bool:
        match node:
            case ast.Constant(value=str(text)) | ast.Name(id=text) | ast.Attribute(attr=text):
                return "cpu" in text.lower() or text in ("device_count", "is_available")
            case ast.Compare(comparators=[ast.Constant(value=int())]):
                return True
        return False

    def _is_shown(self, compare: ast.Compare) -> bool:
        """Return whether a choice is part of a text for a person: `f"{n} GPU{'' if n == 1 else 's'}"`."""
        return any(isinstance(parent, ast.JoinedStr) for _, parent in self.facts.tree.ancestors(compare))
