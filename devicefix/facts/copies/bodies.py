"""The functions of a module, and the order in which their statements may run."""

from __future__ import annotations

import ast
from functools import cached_property

from devicefix.facts.flow.order import Body, Flow
from devicefix.facts.module import Facts
from devicefix.facts.scopes import with_defaults
from devicefix.facts.values import last_name

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

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the names of the functions, methods and classes of the module."""
        classes = (scope.name for scope in self.facts.tree.scopes if isinstance(scope, ast.ClassDef))
        return frozenset((*(function.name for function in self.functions), *classes))

    def flow(self, owner: Body) -> Flow:
        """Return the flow of a body, from a cache."""
        if owner not in self._flows:
            self._flows[owner] = Flow(owner)
        return self._flows[owner]

    def parameters(self, owner: Body) -> frozenset[str]:
        """Return the names of the parameters of a function."""
        if isinstance(owner, ast.Module):
            return frozenset()
        names = {parameter.arg for parameter, _ in with_defaults(owner.args)}
        names.update(extra.arg for extra in (owner.args.vararg, owner.args.kwarg) if extra)
        return frozenset(names)

    def receiver(self, owner: Body) -> str | None:
        """Return the name that a method gives to the object that it is called on, mostly `self`."""
        if isinstance(owner, ast.Module) or not self.is_method(owner):
            return None
        if any(last_name(decorator) == "staticmethod" for decorator in owner.decorator_list):
            return None
        return next(iter(positional_names(owner)), None)

    def is_method(self, function: Function) -> bool:
        """Return whether a function is a method."""
        return isinstance(self.facts.tree.parents.get(function), ast.ClassDef)


def positional_names(function: Function | ast.Lambda) -> list[str]:
    """Return the names of the parameters that can be given by position."""
    return [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
