"""Find the calls that may pass the number of a GPU to a function of another file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.exports.export import of_facts
from devicefix.facts.flow.parameters import Parameter
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.module import Facts
from devicefix.facts.values import last_name

_STEPS = 1  # from a value to a parameter: an attribute that the constructor sets


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
def compared_parameters(facts: Facts) -> frozenset[Parameter]:
    """Return the functions that compare a parameter with an int, each with the parameter."""
    return Sources(facts, How.BOUND, _STEPS).parameters(_compared(facts))


def _compared(facts: Facts) -> Iterator[ast.expr]:
    for node in facts.tree.nodes_with("== 0", "!= 0", "> 0"):
        match node:
            case ast.Compare(left=ast.Name() as left, comparators=[ast.Constant(value=int())]):
                yield left
