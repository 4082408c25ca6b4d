"""Imports of flash-attn and xformers, all of whose uses torch can compute as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from devicefix.devices.context import Context
from devicefix.facts.exports.imports import full_names
from devicefix.facts.scopes import bound_names
from devicefix.rewrite.lines import alone
from devicefix.rules.shared import attention
from devicefix.rules.shared.attention import arguments, function_of, is_attention


class Use(NamedTuple):
    """A call of a function of the library.

    Attributes:
        function: its name in the library.
        node: the expression that is called.
        call: the call.
        given: the arguments by the names of the parameters.
    """

    function: str
    node: ast.expr
    call: ast.Call
    given: dict[str, ast.expr]


class AttentionImport:
    """An import statement of flash-attn or xformers, and the uses of what it binds.

    Args:
        context: the context of the module.
        statement: the import.
    """

    def __init__(self, context: Context, statement: ast.Import | ast.ImportFrom) -> None:
        self.context = context
        self.facts = context.facts
        self.statement = statement
        self.scope = context.facts.tree.scope(statement)
        self._bound = bound_names(statement)

    @property
    def package(self) -> str:
        """The name of the library's package."""
        return full_names(self.statement)[0].partition(".")[0]

    @cached_property
    def uses(self) -> list[Use] | None:
        """The uses of what the import binds, None if not all of them are calls that torch has a counterpart of."""
        found: list[Use] = []
        for name in self._bound:
            for read in self.facts.reads_in(self.scope, name):
                use = self._use(read)
                if use is None:
                    return None
                found.append(use)
        return found

    def _use(self, read: ast.expr) -> Use | None:
        parents = self.facts.tree.parents
        node = read
        while (function := function_of(self.facts.resolve(node) or "")) is None:
            above = parents.get(node)
            if not isinstance(above, ast.Attribute):
                return None
            node = above
        call = self.facts.tree.call_of(node)
        given = arguments(function, call) if call is not None else None
        return None if call is None or given is None else Use(function, node, call, given)

    @cached_property
    def names(self) -> dict[str, str]:
        """The functions that are used, each with the name that its definition gets."""
        functions = {use.function for use in self.uses or ()}
        if isinstance(self.statement, ast.Import):
            return {function: function for function in sorted(functions)}
        aliases = zip(full_names(self.statement), self.statement.names, strict=True)
        own = {function_of(full) or "": alias.asname or alias.name for full, alias in aliases}
        return {function: own.get(function, function) for function in sorted(functions)}

    @property
    def is_direct(self) -> bool:
        """Return whether the import binds the functions themselves, not a module that has them."""
        direct = {use.node.id for use in self.uses or () if isinstance(use.node, ast.Name)}
        return direct.issuperset(self.names.values())

    def code(self) -> str | None:
        """Return the import that binds the names, on one line; None if that would lose a comment."""
        source = self.context.source
        if not self.names or self.is_direct:
            code = source.code(self.statement)
            return None if "#" in code else code if "\n" not in code else ast.unparse(self.statement)
        module = "xformers.ops" if self.package == "xformers" else "flash_attn"
        return f"from {module} import {', '.join(self.names)}"

    def can_be_replaced(self) -> bool:
        """Return whether a definition for a machine without CUDA can take the place of what is imported."""
        statement, tree = self.statement, self.facts.tree
        if self.scope.is_class or not alone(self.context.source, statement):
            return False
        if isinstance(statement, ast.Import) and len(statement.names) > 1:
            return False
        if any(alias.name == "*" for alias in statement.names) or self.uses is None:
            return False
        if any(len(self.scope.bindings.get(name, ())) != 1 for name in self._bound):
            return False
        if not (self.uses or all(map(function_of, full_names(statement)))):
            return False  # it may be imported for what that does
        if not tree.declared_elsewhere.isdisjoint(self._bound) or self._is_read_elsewhere():
            return False
        return self.code() is not None and (self.is_direct or all(map(self._is_free, self.names)))

    def _is_read_elsewhere(self) -> bool:
        """Return whether other files may use what the import binds, in ways that this one does not show."""
        path, project = self.context.devices.path, self.context.project
        names = (*self._bound, *self.names.values()) if self.scope.is_module else ()
        return any(project.is_read_elsewhere(path, name) for name in names)

    def _is_free(self, name: str) -> bool:
        """Return whether a definition can have a name."""
        scopes = map(self.facts.tree.scope, (self.statement, *(use.node for use in self.uses or ())))
        return not self.facts.taken(name) and all(scope.lookup(name) is None for scope in scopes)

    def given(self, function: str) -> set[str]:
        """Return the parameters of a function that calls give something for."""
        return {name for use in self.uses or () if use.function == function for name in use.given}

    def doubts(self) -> Iterator[str]:
        """Yield why the numbers may differ from those with CUDA, or the call may fail."""
        version = self.context.options.torch_version
        calls = [use for use in self.uses or () if is_attention(use.function)]
        if any(not _is_constant(use.given.get(name), 0) for use in calls for name in ("dropout_p", "p")):
            yield "with dropout, a CPU draws different random numbers"
        if any(not _is_constant(use.given.get("attn_bias"), None) for use in calls):
            yield "the mask may be an xformers object, which the fix does not support"
        if version is not None and version < attention.ZERO_ROWS_SINCE:
            if any("causal" in use.given for use in calls):
                yield "before torch 2.5, the first output rows are NaN instead of zero if there are more queries than keys"

    def has_versions(self) -> bool:
        """Return whether torch has what the definitions need in the oldest version to support."""
        version = self.context.options.torch_version
        scaled = any(name in use.given for use in self.uses or () for name in ("softmax_scale", "scale"))
        needed = attention.SCALED_SINCE if scaled else attention.ATTENTION_SINCE
        return version is None or version >= needed


def _is_constant(given: ast.expr | None, value: object) -> bool:
    """Return whether an argument is not given, or is a constant."""
    return given is None or (isinstance(given, ast.Constant) and given.value == value)
