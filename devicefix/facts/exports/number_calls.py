"""Find the calls that may pass the number of a GPU to a function of another file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from devicefix.facts.exports.export import of_facts
from devicefix.facts.flow.kinds import Kind
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, dotted
from devicefix.facts.values import last_name

# The names of what is looked at: numbers, and what else is passed to functions that take either.
_NUMBERS = re.compile("rank|gpu")
_WORDS = ("rank", "gpu", "device")
_NAMED = re.compile("|".join(_WORDS))


class Parameter(NamedTuple):
    """A parameter of a function.

    Attributes:
        function: the name by which the function is called: for `__init__`, that of the class.
        name: the name of the parameter.
        position: its position in a call, -1 if it has none.
    """

    function: str
    name: str
    position: int


@of_facts(*map(str.encode, _WORDS))
def number_calls(facts: Facts) -> frozenset[tuple[str, str]]:
    """Return the functions that calls may pass a number, each with the function that was passed it."""
    return frozenset(_calls(facts))


def _calls(facts: Facts) -> Iterator[tuple[str, str]]:
    for node in facts.tree.nodes_with(*_WORDS):
        if not isinstance(node, (ast.Name, ast.Attribute)) or not _NAMED.search(last_name(node)):
            continue
        found = argument_place(facts, node)
        if found is not None:
            parameter = _parameter(facts, node)
            if parameter is not None:
                yield found[0], parameter.function
            if _NUMBERS.search(last_name(node)) or Kind.INDEX in facts.kinds.of(node).seen:
                yield found[0], ""


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
def compared_parameters(facts: Facts) -> frozenset[tuple[str, tuple[int | str, str]]]:
    """Return the functions that compare a parameter with an int, with its position and name."""
    return frozenset(_compared(facts))


def _compared(facts: Facts) -> Iterator[tuple[str, tuple[int | str, str]]]:
    for node in facts.tree.nodes_with("== 0", "!= 0", "> 0"):
        match node:
            case ast.Compare(left=ast.Name() as left, comparators=[ast.Constant(value=int())]):
                parameter = _parameter(facts, left)
                if parameter is not None:
                    yield parameter.function, (parameter.position, parameter.name)


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
