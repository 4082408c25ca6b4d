"""Describe a tensor or a module: its type, and that of its parts."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a known type."""

    dtype: str


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a known class.

    Attributes:
        name: The class in `torch.nn`, or the full name of an imported class; empty for a class of the module.
        dtype: The type that all of it was converted to; empty if as it was made, None if unknown.
        parts: What a container holds.
        keys: What a container holds by names, and the parts of another module that are converted.
        definition: The class of the module.
        imported: Whether the class is imported from another file.
    """

    name: str = ""
    dtype: str | None = ""
    parts: tuple[Value | None, ...] = ()
    keys: tuple[tuple[str, Value | None], ...] = ()
    definition: ast.ClassDef | None = None
    imported: bool = False


Value = Tensor | Module
Given = Mapping[str, "Value | None"]  # the values of parameters


def converted(value: Value | None, dtype: str | None) -> Value | None:
    """Return a value in another type; an empty one is the same."""
    if value is None or dtype == "":
        return value
    if isinstance(value, Tensor):
        return Tensor(dtype) if dtype else None
    return replace(value, dtype=dtype)


def part_of(owner: Module, part: Value | None) -> Value | None:
    """Return a part of a module, with the type that all of the module was converted to."""
    return converted(part, owner.dtype)


def promoted(operands: Sequence[Value | None]) -> Value | None:
    """Return the result of an operation that promotes the types of its operands."""
    dtypes = {each.dtype if isinstance(each, Tensor) else None for each in operands}
    if None in dtypes or not dtypes:
        return None
    return (
        Tensor(dtypes.pop() or "") if len(dtypes) == 1 else Tensor("float32") if "float32" in dtypes else None
    )
