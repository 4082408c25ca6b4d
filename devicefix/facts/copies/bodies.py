"""The functions of a module, and the order in which their statements may run."""

from __future__ import annotations

import ast
from functools import cached_property

from devicefix.facts.flow import Body, Flow
from devicefix.facts.module import Facts

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Bodies:
    """The bodies of a module: its own and those of its functions.

    Args:
        facts: the facts of the module.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._flows: dict[Body, Flow] = {}

    @cached_property
    def owners(self) -> list[Body]:
        """Return the module and its functions."""
        return [scope for scope in self.facts.tree.scopes if isinstance(scope, Body)]

    @cached_property
    def functions(self) -> list[Function]:
        """Return the functions and methods of the module."""
        return [owner for owner in self.owners if not isinstance(owner, ast.Module)]

    def flow(self, owner: Body) -> Flow:
        """Return the flow of a body, from a cache."""
        if owner not in self._flows:
            self._flows[owner] = Flow(owner)
        return self._flows[owner]

    def is_method(self, function: Function) -> bool:
        """Return whether a function is a method."""
        return isinstance(self.facts.tree.parents.get(function), ast.ClassDef)


def positional_names(function: Function) -> list[str]:
    """Return the names of the parameters that can be given by position."""
    return [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
