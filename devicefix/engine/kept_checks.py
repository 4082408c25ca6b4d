"""Keep the checks that stop a program without CUDA before code that still needs it.

Without such a check, a clear message becomes a crash.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice

from devicefix.facts.flow.steps import Steps
from devicefix.facts.scopes import FUNCTIONS
from devicefix.facts.tree import children
from devicefix.model import Finding

STILL = "still needs CUDA"
_REFUSAL = "DF701"
Found = tuple[ast.AST, Finding]
_STEPS = 4000  # nodes


def with_checks(steps: Steps, found: list[Found], failing: set[str]) -> Iterator[Found]:
    """Yield findings, without the safe fixes that remove a check before code that has no safe fix.

    Args:
        steps: the steps of the module's values.
        found: the findings, each with the node that its rule visited.
        failing: the codes of those that raise an error without CUDA.
    """
    left = {node: each.line for node, each in found if each.code in failing and not each.is_fixable(False)}
    for node, finding in found:
        may_go = left and finding.code in (_REFUSAL, "DF402") and finding.is_fixable(unsafe_fixes=False)
        removes = may_go and finding.fix and any(edit.effect.removed for edit in finding.fix.edits)
        line = min((left[each] for each in after(steps, node) if each in left), default=0) if removes else 0
        yield node, finding.unsafe(f"line {line} {STILL}") if line else finding


def after(steps: Steps, check: ast.AST) -> list[ast.AST]:
    """Return what certainly runs after a check in its block, and in functions of the module called there."""
    function = steps.tree.scope(check).node
    found: list[ast.AST] = [*steps.tree.after(steps.tree.statement(check))]
    found += function.args.defaults if isinstance(function, FUNCTIONS) else ()
    known = {function}
    for each in islice(found, _STEPS):  # which grows
        match each:
            case ast.If() | ast.While() | ast.IfExp() | ast.BoolOp():
                found.append(each.values[0] if isinstance(each, ast.BoolOp) else each.test)
            case ast.Name() | ast.Attribute() if (called := steps.function(each)) and called not in known:
                known.add(called)
                found += called.body
            case _ if not (isinstance(each, (*FUNCTIONS, ast.ClassDef)) or getattr(each, "handlers", None)):
                found += children(each)
    return found
