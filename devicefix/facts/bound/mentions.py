"""Find the names that a statement mentions: it may call what they name."""

from __future__ import annotations

import ast
from collections.abc import Callable

from devicefix.facts.bound.evaluation import OF_PROPERTIES, evaluated, names_read
from devicefix.facts.names import Names
from devicefix.facts.scopes import DEFINITIONS, Function

# Whoever reads these can call any function.
EVERYTHING = frozenset({"eval", "exec", "globals", "locals", "vars"})
# Their decorators call nothing, and what they put around a block lets every error through.
_PASSIVE = {"torch", "functools", "abc", "typing", "dataclasses", "enum", "numpy", "warnings", "contextlib"}
_SWALLOWING = {"contextlib.suppress", "contextlib.ExitStack", "contextlib.AsyncExitStack"}
_PASSIVE_BUILTINS = {"property", "staticmethod", "classmethod", "open"}


class Mentions:
    """The names that statements and definitions read.

    Args:
        facts: The module's names.
        is_circular: Whether the module is in a circle of imports: other files may call it at any time.
    """

    def __init__(self, facts: Names, is_circular: Callable[[], bool]) -> None:
        self.is_circular = is_circular
        self._facts = facts
        self._of_statements: dict[ast.stmt, frozenset[str]] = {}
        self._of_definitions: dict[ast.AST, frozenset[str]] = {}

    def of_statement(self, node: ast.stmt) -> frozenset[str]:
        """Return the names that a statement reads itself, without its blocks, and what they may call.

        The name of a definition is among them if a decorator may call it.
        """
        if node not in self._of_statements:
            found = names_read(evaluated(node))
            if isinstance(node, DEFINITIONS) and self._may_call(node):
                found.add(node.name)
            self._of_statements[node] = frozenset(found)
        return self._of_statements[node]

    def of_definition(self, node: ast.AST) -> frozenset[str]:
        """Return the names that a function, lambda or class reads anywhere."""
        if node not in self._of_definitions:
            self._of_definitions[node] = frozenset(names_read([node]))
        return self._of_definitions[node]

    def _may_call(self, node: Function | ast.ClassDef) -> bool:
        """Return whether a definition may call what it defines, or a method of it."""
        if isinstance(node, ast.ClassDef) and (node.keywords or self._bases_may_call(node)):
            return True
        return any(map(self.acts, node.decorator_list))

    def _bases_may_call(self, node: ast.ClassDef) -> bool:
        """Return whether a base class of the module sees its subclasses as they are made."""
        for base in node.bases:
            found = self._facts.tree.root.lookup(base.id) if isinstance(base, ast.Name) else None
            for binding in found[1] if found else ():
                body = getattr(binding.node, "body", ())
                if any(getattr(each, "name", None) == "__init_subclass__" for each in body):
                    return True
        return False

    def acts(self, node: ast.expr) -> bool:
        """Return whether a decorator may call something, or a context manager may catch an error."""
        function = node.func if isinstance(node, ast.Call) else node
        if isinstance(function, ast.Attribute) and function.attr in OF_PROPERTIES:
            return False
        if isinstance(function, ast.Name) and function.id in _PASSIVE_BUILTINS:
            return self._facts.tree.scope(node).lookup(function.id) is not None
        name = self._facts.resolve(function) or ""
        return name.partition(".")[0] not in _PASSIVE or name in _SWALLOWING
