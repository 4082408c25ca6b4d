"""Loops over all GPUs, which do nothing where there is none."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from devicefix.facts import COUNTS, Facts
from devicefix.rules.shared.counts.counts import Counts
from devicefix.rules.shared.counts.ranges import is_needed, is_zero, iterated


class IdleLoops:
    """The loops over all GPUs in one module that do nothing without CUDA, also after fixes.

    Args:
        facts: the facts of the module.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._counts = Counts(facts)

    def hold(self, node: ast.AST) -> bool:
        """Return whether code is part of such a loop."""
        return self._counts_gpus and any(map(self._stays_empty, iterated(self.facts.tree, node)))

    @cached_property
    def _counts_gpus(self) -> bool:
        """Return whether the module may count GPUs."""
        return "device_count" in self.facts.tree.text  # the last part of each of COUNTS

    def _stays_empty(self, call: ast.expr) -> bool:
        """Return whether a loop over `range(…)` is one over all GPUs, of which none are needed."""
        if not isinstance(call, ast.Call) or not self.facts.guards.lists_gpus(call):
            return False
        [number] = call.args
        judged = map(self._counts.judge, self._origins(number, set()))
        harms = any(whole or number in harmed for harmed, whole in judged)
        return not harms and not is_needed(self.facts.tree, call)

    def _origins(self, number: ast.expr, seen: set[ast.AST]) -> Iterator[ast.expr]:
        """Yield the calls that count GPUs, and each 0, that a number of GPUs may be."""
        for node in {*ast.walk(number)} - seen:
            seen.add(node)
            match node:
                case ast.Call() | ast.Constant() if is_zero(node) or self.facts.call(node, *COUNTS):
                    yield node
                case ast.Name() | ast.Attribute():
                    for value in filter(None, (binding.value for binding in self.facts.bindings(node))):
                        yield from self._origins(value, seen)
