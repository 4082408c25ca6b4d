"""Find the type that a program names, creates or converts to."""

from __future__ import annotations

import ast
from functools import cached_property

from devicefix.facts.flow.kinds import DEVICES, Kind
from devicefix.facts.module import Facts
from devicefix.facts.precision.tables import DTYPES, TO
from devicefix.facts.precision.values import Tensor

_DEVICES = {*DEVICES, Kind.NONE}


class Dtypes:
    """The types that expressions of a module name."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._tree = facts.tree

    def made(self, node: ast.Call) -> Tensor | None:
        """Return a tensor of the type that a function makes."""
        dtype = keyword(node, "dtype")
        if dtype is None:
            return None if self._has_other_default else Tensor("float32")
        name = self.named(dtype)
        return Tensor(name) if name else None

    @cached_property
    def _has_other_default(self) -> bool:
        """Return whether tensors may be made in another type than float32."""
        return "set_default_" in self._tree.text

    def named(self, node: ast.expr) -> str | None:
        """Return the type that an expression names, such as `bfloat16`."""
        name = self._facts.resolve(node)
        value = self._facts.value(node) if name is None else None
        if value is not None and isinstance(node, ast.Name):
            name = self._facts.resolve(value)
        return DTYPES.get(name or "")

    def target(self, node: ast.Call, method: str) -> str | None:
        """Return the type that a conversion makes: empty for the same, None if it is not known."""
        if method in TO:
            return TO[method]
        given = keyword(node, "dtype")
        if given is not None:
            return self.named(given)
        values = node.args
        found = next(filter(None, map(self.named, values)), None)
        if found is not None:
            return found
        is_device = all(
            isinstance(each, ast.Constant) or self._facts.kinds.of(each).are(_DEVICES) for each in values
        )
        return "" if is_device else None


def keyword(node: ast.Call, name: str) -> ast.expr | None:
    """Return the argument of a call by its name."""
    return next((each.value for each in node.keywords if each.arg == name), None)


def is_conversion(node: ast.AST) -> bool:
    """Return whether an expression may convert a module: `net.half()`."""
    match node:
        case ast.Call(func=ast.Attribute(attr=method)):
            return method in ("to", *TO)
    return False
