"""Definitions that are only used where CUDA is available: nothing in them needs a fix."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from devicefix.facts.scopes import with_defaults

if TYPE_CHECKING:
    from devicefix.devices.context import Context


class GuardedUses:
    """The functions, bindings and defaults of one module that are only used where CUDA is available.

    Args:
        context: the context of the module.
        is_guarded: whether a node is only reached there.
    """

    def __init__(self, context: Context, is_guarded: Callable[[ast.AST], bool]) -> None:
        self._context = context
        self._is_guarded = is_guarded
        self._facts = context.facts
        self._known: dict[ast.AST, bool] = {}  # by definition; while one is asked for, it is False

    def hold(self, node: ast.AST) -> bool:
        """Return whether a node is part of a definition that is only used where CUDA is available."""
        whole, parents = node, self._facts.tree.parents
        while isinstance(choice := parents.get(whole), ast.IfExp) and whole is not choice.test:
            whole = choice
        is_text = isinstance(node, (ast.Constant, ast.JoinedStr))
        # A device, or its name, can be made anywhere.
        names_device = is_text or self._facts.call(node, "torch.device")
        if names_device and self._is_local(whole):
            return True
        match self._definition(whole):
            case ast.FunctionDef(name=name, decorator_list=[]) as definition:
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) as definition if names_device:
                pass
            case _:
                return False
        if definition not in self._known:
            self._known[definition] = False
            uses = [read for read in self._facts.tree.reads(name) if not self._facts.shadowed(name, read)]
            project, path = self._context.project, self._context.devices.path
            guarded = bool(uses) and self._are_guarded(uses)
            self._known[definition] = guarded and not project.is_read_elsewhere(path, name)
        return self._known[definition]

    def _is_local(self, node: ast.AST) -> bool:
        """Return whether a node is the value of a variable of a function that is only read with CUDA.

        It may be the default of a parameter.
        """
        match self._facts.tree.parents.get(node):
            case ast.Assign(targets=[ast.Name(id=name)]):
                function, names = self._facts.tree.scope(node).function, [name]
            case ast.arguments() as arguments:
                function = self._facts.tree.scopes.get(self._facts.tree.parents[arguments])
                names = [parameter.arg for parameter, default in with_defaults(arguments) if default is node]
            case _:
                return False
        reads = [read for name in names if function for read in self._facts.reads_in(function, name)]
        return bool(reads) and self._are_guarded(reads)

    def _are_guarded(self, uses: Iterable[ast.AST]) -> bool:
        return all(self._is_guarded(use) or self.hold(use) for use in uses)

    def _definition(self, node: ast.AST) -> ast.AST | None:
        """Return the function or class of the module that a node is part of, or else its statement."""
        scope = self._facts.tree.scope(node)
        if scope.is_module:
            return self._facts.tree.parents.get(node)
        while scope.parent is not None and not scope.parent.is_module:
            scope = scope.parent
        return scope.node
