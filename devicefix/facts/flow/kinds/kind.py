"""Define the kinds of values that matter to devices, and sets of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """A kind of value."""

    TENSOR = "a tensor"
    MODULE = "a module"
    OBJECT = "another object"
    CUDA = "a CUDA device"
    CPU = "the CPU"
    DEVICE = "a device that is chosen at run time"
    INDEX = "an int"
    COUNT = "the number of GPUs"
    NONE = "None"
    DTYPE = "a dtype"
    FLAG = "whether CUDA is available"
    STREAM = "a stream"
    EVENT = "an event"
    STORAGE = "a storage"
    STRING = "a string that is not a device"
    COLLECTION = "a collection"
    OTHER = "a value of another kind"


# What `.to(…)` and `device=` accept besides None.
DEVICES = frozenset({Kind.CUDA, Kind.CPU, Kind.DEVICE, Kind.INDEX, Kind.COUNT})


NUMBERS = frozenset({Kind.INDEX, Kind.COUNT})


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of value that an expression can have.

    Attributes:
        seen: the kinds that the module shows, each with a node that shows it.
        unknown: whether a value is of unknown kind.
        open: whether a caller that the module does not show may pass any value.
        classes: the full names of the classes of the tensors, modules and objects, as far as they are known.
    """

    seen: dict[Kind, ast.AST] = field(default_factory=dict)
    unknown: bool = False
    open: bool = False
    classes: frozenset[str] = frozenset()

    def are(self, kinds: Iterable[Kind]) -> bool:
        """Return whether the value is certainly of one of some kinds."""
        return not self.open and self.shown(kinds)

    def shown(self, kinds: Iterable[Kind]) -> bool:
        """Return whether all values that the module shows are of some kinds; callers may pass others."""
        return bool(self.seen) and not self.unknown and self.seen.keys() <= set(kinds)

    def can_be(self, kind: Kind) -> bool | None:
        """Return whether the value can be of a kind, None where that is unknown."""
        if kind in self.seen:
            return True
        return None if self.unknown or self.open or not self.seen else False

    def __or__(self, other: Kinds) -> Kinds:
        return Kinds(
            {**other.seen, **self.seen},
            self.unknown or other.unknown,
            self.open or other.open,
            self.classes | other.classes,
        )

    def without(self, kind: Kind) -> Kinds:
        """Return the same kinds but one."""
        seen = {each: node for each, node in self.seen.items() if each is not kind}
        return Kinds(seen, self.unknown, self.open, self.classes)


UNKNOWN = Kinds(unknown=True)


def of_names(names: Iterable[str], node: ast.AST) -> Kinds:
    """Return the kinds that another file shows by their names, each shown by a node of this one."""
    names = set(names)
    return Kinds({kind: node for kind in Kind if kind.name in names}, unknown=not names or "?" in names)


def union(kinds: Iterable[Kinds]) -> Kinds:
    """Return the kinds of a value that may be any of several."""
    found = Kinds()
    for each in kinds:
        found |= each
    return found
