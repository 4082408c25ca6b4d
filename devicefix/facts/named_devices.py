"""The names of devices among the strings of a module: what they are made of, and what is beside them."""

from __future__ import annotations

import ast
from itertools import islice

from devicefix.facts.module import Facts
from devicefix.facts.names import Names
from devicefix.facts.values import cpu, cuda_string, last_name

_AROUND = 6  # how many expressions may put a string together around its first piece


def composed(facts: Facts, node: ast.expr) -> ast.expr | None:
    """Return the whole string that a piece such as `"cuda:"` begins, None if that is no CUDA device.

    Args:
        facts: the facts of the module.
        node: a string literal or an f-string: the whole, or its first piece.
    """
    whole = node if cuda_string(node) else None
    for _, parent in islice(facts.tree.ancestors(node), _AROUND):
        if not isinstance(parent, ast.expr):
            break
        if cuda_string(parent):
            whole = parent
    return whole


def collapses(facts: Facts, value: ast.expr) -> str | None:
    """Return why a value beside others must not become the same as they are, None where it can."""
    parent = facts.tree.parents.get(value)
    if isinstance(parent, (ast.Set, ast.SetComp)):
        return "without CUDA, this element may equal the CPU, so the set has one element fewer"
    owner = facts.tree.scope(value).node
    if isinstance(owner, ast.ClassDef) and any(last_name(base).endswith("Enum") for base in owner.bases):
        return "without CUDA, this member may equal the CPU, and then becomes its alias"
    if isinstance(parent, (ast.List, ast.Tuple)) and facts.once(_holds_cpu, parent.elts):
        return "the list already contains the CPU"
    return None


def _holds_cpu(facts: Names, elements: list[ast.expr]) -> bool:
    return any(cpu(facts, each) for each in elements)
