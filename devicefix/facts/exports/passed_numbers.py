"""The arguments of calls that may be the number of a GPU, for the functions of other files.

A call passes a value whose kind the file shows, or a parameter of the function around it. The kind of that is
shown by the calls of that function, perhaps in a third file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from devicefix.facts.exports.export import of_facts
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, dotted
from devicefix.facts.values import last_name

# The names of what is looked at: numbers, and what else is passed to functions that take either.
_NUMBERS = ("rank", "gpu")
_WORDS = (*_NUMBERS, "device")
_NAMED = re.compile("|".join(_WORDS))
UNKNOWN = "?"
PassedNumber = tuple[str, tuple[int | str, str]]


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function.

    Attributes:
        function: the name by which the function is called: for `__init__`, that of the class.
        name: the name of the parameter.
        position: its position in a call, -1 if it has none.
    """

    function: str
    name: str
    position: int

    @classmethod
    def read(cls, text: str) -> Parameter | None:
        """Return the parameter that `str` wrote, None for any other text."""
        function, *rest = text.split(":")
        return cls(function, rest[0], int(rest[1])) if rest else None

    def __str__(self) -> str:
        return f"{self.function}:{self.name}:{self.position}"


@of_facts(*map(str.encode, _WORDS))
def passed_numbers(facts: Facts) -> frozenset[PassedNumber]:
    """Return the functions to which the calls of a module may pass a number, and what they pass.

    Returns:
        The name of the function or class; the position or keyword of the argument; the name of a kind, a
        `Parameter` as text, or `UNKNOWN`.
    """
    return frozenset(_passed(facts))


def _passed(facts: Facts) -> Iterator[PassedNumber]:
    for node in facts.tree.nodes_with(*_WORDS):
        if not isinstance(node, (ast.Name, ast.Attribute)) or not _NAMED.search(last_name(node)):
            continue
        found = argument_place(facts, node)
        if found is not None:
            function, place = found
            yield from ((function, (place, source)) for source in _sources(facts, node))


def argument_place(facts: Facts, node: ast.expr) -> tuple[str, int | str] | None:
    """Return the function, not of torch, that gets a value as an argument, and its position or keyword."""
    parent = facts.tree.parents.get(node)
    call: ast.AST | None = parent
    place: int | str | None = None
    if isinstance(parent, ast.keyword):
        call, place = facts.tree.parents.get(parent), parent.arg
    if not isinstance(call, ast.Call) or (facts.resolve(call.func) or "").startswith("torch."):
        return None
    if place is None and node in call.args:
        before = call.args[: call.args.index(node)]
        place = None if any(isinstance(each, ast.Starred) for each in before) else len(before)
    function = last_name(call.func)
    return (function, place) if function and place is not None else None


@of_facts(b"= 0", b"> 0")
def compared_parameters(facts: Facts) -> frozenset[PassedNumber]:
    """Return the functions that compare a parameter with an int, with its position and name."""
    return frozenset(_compared(facts))


def _compared(facts: Facts) -> Iterator[PassedNumber]:
    for node in facts.tree.nodes_with("== 0", "!= 0", "> 0"):
        match node:
            case ast.Compare(left=ast.Name() as left, comparators=[ast.Constant(value=int())]):
                parameter = _parameter(facts, left)
                if parameter is not None:
                    yield parameter.function, (parameter.position, parameter.name)


def _sources(facts: Facts, node: ast.Name | ast.Attribute) -> list[str]:
    """Return what a variable or attribute may hold: kinds, and the parameter that it is."""
    parameter = _parameter(facts, node)
    if isinstance(node, ast.Attribute) and not any(word in node.attr for word in _NUMBERS):
        return [UNKNOWN if parameter is None else str(parameter)]  # most are the devices of tensors
    kinds = facts.kinds.of(node)
    found = sorted(kind.name for kind in kinds.seen)
    if parameter is not None and not kinds.unknown:
        return [*found, str(parameter)]
    return found if found and not (kinds.unknown or kinds.open) else [UNKNOWN]


def _parameter(facts: Facts, node: ast.Name | ast.Attribute) -> Parameter | None:
    """Return the parameter that a variable is, or that the constructor stores in an attribute of `self`."""
    if isinstance(node, ast.Name):
        found = facts.tree.scope(node).lookup(node.id)
        bindings = found[1] if found is not None else []
    else:
        stored = (
            facts.tree.attributes.get(dotted(node) or "", ()) if dotted(node) == f"self.{node.attr}" else ()
        )
        values = [binding.value for binding in stored]
        if len(values) != 1 or not isinstance(values[0], ast.Name):
            return None
        return _parameter(facts, values[0])
    match bindings:
        case [Binding(parameter=True, node=ast.arg() as arg)]:
            return _described(facts, arg)
    return None


def _described(facts: Facts, arg: ast.arg) -> Parameter | None:
    """Return a parameter with the name that its function is called by."""
    function = facts.tree.parents[facts.tree.parents[arg]]
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    owner = facts.tree.parents.get(function)
    positional = [*function.args.posonlyargs, *function.args.args]
    if arg in (function.args.vararg, function.args.kwarg):
        return None
    name = owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
    position = positional.index(arg) - isinstance(owner, ast.ClassDef) if arg in positional else -1
    return Parameter(name, arg.arg, position)
