"""Follow a number of GPUs to its uses."""

from __future__ import annotations

import ast
import re

from devicefix.facts import Facts
from devicefix.facts.flow.forwards import Followed, Forwards
from devicefix.facts.values import last_name

PROCESSES = re.compile(
    r"(^|_)(nprocs?|n_procs|num_procs|world_size|worldsize|num_processes|nproc_per_node|num_replicas)\Z"
)
_PASSING = {"min", "int", "abs", "get", "getenv", "getattr"}  # they return 0 for 0, or the default


class CountUses(Forwards):
    """The uses of numbers that may be 0, in one module.

    Args:
        facts: the facts of the module.
    """

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts, zero=True)

    def follow(self, count: ast.expr) -> Followed:
        """Return where a number goes that is 0 without CUDA, also through functions that return 0 for 0."""
        found = Followed()
        todo, seen = [count], set[ast.expr]()
        while todo:
            part = self.of(todo.pop())
            found.variables += part.variables
            for use in part.uses:
                call = self._passing(use)
                if call is None:
                    found.uses.append(use)
                elif call not in seen:
                    seen.add(call)
                    todo.append(call)
        return found

    def _passing(self, node: ast.expr) -> ast.Call | None:
        """Return the call that returns 0 if an argument is, or returns that argument as a default."""
        call = self.facts.tree.parents.get(node)
        if not isinstance(call, ast.Call) or node not in call.args:
            return None
        if last_name(call.func) == "range" and call.args == [node]:
            outer = self.facts.tree.parents.get(call)
            return outer if isinstance(outer, ast.Call) and last_name(outer.func) == "len" else None
        return call if last_name(call.func) in _PASSING else None


def counts_processes(found: Followed) -> bool:
    """Return whether an attribute that holds a value is a number of processes, judged by its name."""
    return any(variable.attribute and PROCESSES.search(variable.name) for variable in found.variables)
