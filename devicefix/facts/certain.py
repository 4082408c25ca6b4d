"""Devices that are the current CUDA device on every machine with CUDA, and the CPU elsewhere."""

from __future__ import annotations

import ast

from devicefix.facts.module import Facts
from devicefix.facts.values import choice, current_device


def certain_device(facts: Facts, node: ast.expr | None, depth: int = 4) -> bool:
    """Return whether an expression is the current CUDA device on every machine with CUDA, else the CPU.

    An unconditional `"cuda"` counts, since fixes replace it. A device that a user's flag chooses does not.
    """
    if node is None or depth == 0 or not current_device(facts, node):
        return False
    match node:
        case ast.IfExp(test=test):
            arms = choice(facts, node)
            return (
                arms is not None
                and means_cuda(facts, test, arms[1] is node.body)
                and certain_device(facts, arms[1], depth - 1)
            )
        case ast.Call(args=[argument]):
            return certain_device(facts, argument, depth - 1)
        case ast.Name():
            return certain_device(facts, facts.value(node), depth - 1)
    return True


def means_cuda(facts: Facts, test: ast.expr, truth: bool = True) -> bool:
    """Return whether a test is true (or false, with `truth=False`) with CUDA, and only there."""
    return facts.guards.settled(test) is truth and facts.guards.implies(test, truth)
