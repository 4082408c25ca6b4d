"""List the functions of torch that ask for CUDA, and what they return where there is a GPU."""

from __future__ import annotations

import ast

AVAILABLE = "torch.cuda.is_available"
VERSION = "torch.version.cuda"
# True on a machine with CUDA, false on a CPU.
ASKS = (AVAILABLE, "torch.accelerator.is_available")
COUNTS = ("torch.cuda.device_count", "torch.accelerator.device_count")
# Calls that are true or more than 0 only where there is more than a CPU.
IMPLYING = {*ASKS, *COUNTS, "torch.cuda.is_initialized"}


def of_any_count(op: ast.cmpop, value: int) -> bool | None:
    """Return what `n op value` is for every n from 1 up, or None where that depends on n."""
    match op:
        case ast.Gt() | ast.NotEq() if value == 0:
            return True
        case ast.GtE() if value == 1:
            return True
        case ast.Eq() | ast.LtE() if value == 0:
            return False
        case ast.Lt() if value == 1:
            return False
    return None


def at_least_one(op: ast.cmpop, value: int, truth: bool) -> bool:
    """Return whether `n op value` being true (or false) means that n is not 0."""
    match op:
        case ast.Gt() | ast.NotEq():
            return truth and (value >= 0 if isinstance(op, ast.Gt) else value == 0)
        case ast.GtE():
            return truth and value >= 1
        case ast.Lt() | ast.Eq():
            return not truth and (value >= 1 if isinstance(op, ast.Lt) else value == 0)
        case ast.LtE():
            return not truth and value >= 0
    return False


def falsy(node: ast.expr) -> bool:
    """Check whether an expression is a literal that is false."""
    return isinstance(node, ast.Constant) and not node.value
