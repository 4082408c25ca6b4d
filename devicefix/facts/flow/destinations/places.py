"""Find the places of a module that read an attribute or a key, or call a function, by its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Flag, auto
from functools import cached_property

from devicefix.facts.flow.sinks import is_of_tensor
from devicefix.facts.module import Facts
from devicefix.facts.values import last_name

# The containers around a value, the outer one first: each by the value's key or position, empty if any.
Layers = tuple[str, ...]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

SHOWS = {
    "print", "debug", "info", "warning", "error", "critical", "exception", "log", "write", "echo", "len",
    "bool", "repr", "type", "isinstance", "hasattr", "startswith", "endswith",
}  # fmt: skip


class Use(Flag):
    """The uses of a value."""

    NOTHING = 0
    DEVICE = auto()  # it is taken for a device somewhere
    SHOWN = auto()  # it is compared or printed
    NUMBERED = auto()  # it gets a number: `torch.device(name, 1)`
    UNPACKED = auto()  # a function of torch, or `to`, gets it among the options of a dictionary
    REFUSED = auto()  # with it, the program ends without CUDA
    OF_CUDA = auto()  # a call with a fix of its own takes it: of torch.cuda, or one that loads
    UNKNOWN = auto()  # it leaves the module, or is used in a way that is not known


class Places:
    """The places of a module that read what is stored under a name.

    Args:
        facts: the facts of the module, with what the other files show.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.known: dict[tuple[object, Layers], Use] = {}  # by place, and by what is around the value there

    def attribute_reads(self, name: str) -> Iterator[ast.expr]:
        """Yield the places that read an attribute of any object."""
        for node in self.facts.tree.nodes_with(f".{name}"):
            if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load):
                if not is_of_tensor(self.facts, node):
                    yield node

    def key_reads(self, key: str) -> Iterator[ast.expr]:
        """Yield the places that read a key of any dictionary."""
        for node in self.facts.tree.nodes_with(f'"{key}"', f"'{key}'"):
            match node:
                case ast.Subscript(slice=ast.Constant(value=str(text)), ctx=ast.Load()) if text == key:
                    yield node
                case ast.Call(func=ast.Attribute(attr="get" | "pop"), args=[first, *_]) if (
                    text_of_literal(first) == key
                ):
                    yield node

    def calls(self, name: str) -> Iterator[ast.expr]:
        """Yield the calls of a function or method by its name."""
        for node in self.facts.tree.nodes_with(name):
            if isinstance(node, ast.Call) and last_name(node.func) == name:
                yield node

    @cached_property
    def methods(self) -> dict[str, list[Function]]:
        """The methods of the module's classes, by name."""
        found: dict[str, list[Function]] = {}
        for node in self.facts.tree.scopes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if isinstance(self.facts.tree.parents.get(node), ast.ClassDef):
                    found.setdefault(node.name, []).append(node)
        return found


def text_of_literal(node: ast.expr | None) -> str:
    """Return the text of a string literal, empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def position_of(call: ast.Call, node: ast.expr) -> int | None:
    """Return the position of an argument, None behind `*arguments`."""
    position = call.args.index(node)
    return None if any(isinstance(before, ast.Starred) for before in call.args[:position]) else position
