"""Devices that are the current CUDA device on every machine with CUDA, and the CPU elsewhere."""

from __future__ import annotations

import ast
from functools import partial

from devicefix.facts.module import Facts
from devicefix.facts.values import current_device


def certain_device(facts: Facts, node: ast.expr | None) -> bool:
    """Return whether an expression is the current CUDA device on every machine with CUDA, else the CPU.

    An unconditional `"cuda"` counts, since fixes replace it. A device that a user's flag chooses does not.
    """
    return current_device(facts, node, partial(means_cuda, facts))


def means_cuda(facts: Facts, test: ast.expr, truth: bool = True) -> bool:
    """Return whether a test is true (or false, with `truth=False`) with CUDA, and only there."""
    return facts.guards.settled(test) is truth and facts.guards.implies(test, truth)
