"""Keep what a program does on another accelerator than CUDA, which it also supports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from devicefix.devices.choose import OF_OTHERS
from devicefix.devices.context import Context
from devicefix.engine.kept_checks import Found, after
from devicefix.facts.path_conditions import conditions_around
from devicefix.facts.scopes import COMPREHENSIONS, FUNCTIONS
from devicefix.model import Doubt, Finding
from devicefix.rules.registry import RULES

_OF_CUDA = re.compile("cuda|nccl", re.IGNORECASE)
# What raises an error without CUDA: moves, types, and these functions.
_RAISING = ("DF101", "DF102", "DF301")
_FUNCTIONS = ("torch.cuda.set_device", "torch.cuda.synchronize", "torch.cuda.current_device")
_MAY_NOT_RUN = (
    ast.For,
    ast.AsyncFor,
    ast.Try,
    ast.ExceptHandler,
    ast.match_case,
    *FUNCTIONS,
    *COMPREHENSIONS,
)


def unless_others(context: Context, found: list[Found]) -> Iterator[Found]:
    """Yield findings; where another accelerator may do the same, a fix that asks for CUDA is unsafe or gone.

    Args:
        context: the context of the module.
        found: the findings, each with the node at which it was found.
    """
    doubt = Doubt(OF_OTHERS)
    doubtful = {node for node, each in found if each.fix and doubt in each.fix.needs}
    of_cuda = {node for node, each in found if doubtful and _needs_cuda(context, node, each)}
    raising = [
        node
        for node, each in found
        if node in of_cuda and (each.code in _RAISING or context.facts.call(node, *_FUNCTIONS))
    ]
    for node, finding in found:
        concerned = node in doubtful and node not in of_cuda and not _goes_with(context, node, raising)
        if not (concerned and finding.fix and doubt in finding.fix.needs):
            yield node, finding
        elif not finding.fix.optional:
            yield node, finding.unsafe(OF_OTHERS)


def _needs_cuda(context: Context, node: ast.AST, finding: Finding) -> bool:
    """Return whether the code of a finding names CUDA, or is that of a rule for what only CUDA has."""
    if isinstance(node, ast.Module):
        return False
    if isinstance(node, (ast.If, ast.IfExp)) and context.facts.guards.implies(node.test):
        return False  # other accelerators skip it
    named = (each for each in ast.walk(node) if isinstance(each, (ast.Name, ast.Attribute)))
    names = (context.facts.resolve(each) or "" for each in named)
    code = ast.unparse(node)  # parameters have no place
    return RULES[finding.code].only_cuda or any(map(_OF_CUDA.search, (code, *names)))


def _goes_with(context: Context, node: ast.AST, raising: list[ast.AST]) -> bool:
    """Return whether a node runs only before or after code that raises an error without CUDA."""
    if not raising:
        return False
    tree, below = context.facts.tree, {*after(context.forwards, node)}
    around = {parent for _, parent in tree.ancestors(node)}
    known = {(ast.dump(test), truth) for test, truth in conditions_around(tree, node)}
    for each in raising:
        outside = {parent for _, parent in tree.ancestors(each)} - around
        tests = list(conditions_around(tree, each))
        names = (part for test, _ in tests for part in ast.walk(test) if isinstance(part, ast.Name))
        if each in below or (
            _place(each) < _place(node)
            and not any(isinstance(parent, _MAY_NOT_RUN) for parent in outside)
            and all((ast.dump(test), truth) in known for test, truth in tests)
            and all(len(context.facts.bindings(name)) <= 1 for name in names)
        ):
            return True
    return False


def _place(node: ast.AST) -> tuple[int, int, int, int]:
    """Return where a node begins and ends, for parameters those of the first one."""
    first: Any = next(each for each in ast.walk(node) if hasattr(each, "lineno"))
    return first.lineno, first.col_offset, first.end_lineno, first.end_col_offset
