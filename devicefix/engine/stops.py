"""Find the code that a program does not reach without CUDA, because an earlier check stays that stops it."""

from __future__ import annotations

import ast
from itertools import takewhile

from devicefix.facts.scopes import FUNCTIONS
from devicefix.facts.tree import Tree
from devicefix.model import Finding, Safety

_REFUSAL = "DF701"


class Stops:
    """The checks in one module that stop the program without CUDA, and that no safe fix removes.

    What such a check leads to runs only with CUDA: a fix that asks for CUDA would be another guard below it.

    Args:
        tree: the tree of the module.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._blocks: dict[int, ast.stmt] = {}

    def note(self, node: ast.AST, finding: Finding) -> None:
        """Note a finding if it is that of a check which stays.

        Args:
            node: the node that the rule visited.
            finding: the finding.
        """
        if finding.code == _REFUSAL and finding.safety is not Safety.SAFE:
            statement = self._tree.statement(node)
            self._blocks.setdefault(id(self._tree.block(statement)), statement)

    def before(self, node: ast.AST) -> int | None:
        """Return the line of the check that keeps the program from a node, None if there is none."""
        if not self._blocks:
            return None
        around = takewhile(lambda pair: not isinstance(pair[1], FUNCTIONS), self._tree.ancestors(node))
        for child in (child for child, _ in around if isinstance(child, ast.stmt)):
            check = self._blocks.get(id(self._tree.block(child)))
            if check is not None and (check.lineno < child.lineno or (check is child and check is not node)):
                return check.lineno
        return None
