"""Find the modules that a file imports, and the names whose errors it catches."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from devicefix.facts.module import Facts
from devicefix.facts.refusals import may_catch
from devicefix.facts.tree import walk
from devicefix.facts.values import last_name

# What code that refuses to run without CUDA may raise.
_ERRORS = ("AssertionError", "RuntimeError", "ValueError", "OSError", "SystemExit")


def imported_modules(facts: Facts) -> Iterable[str]:
    """Yield the modules that a file imports, absolute or with their leading dots."""
    for node in facts.tree.imports:
        yield from modules_of(node)


def modules_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that an import statement reads, and the names that it takes from one."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = "." * node.level + (node.module or "")
    joint = "" if module.endswith(".") else "."
    return [module, *(f"{module}{joint}{alias.name}" for alias in node.names if alias.name != "*")]


def tried_names(facts: Facts) -> Iterable[str]:
    """Yield the last names of what a `try` statement imports or calls, if it catches such errors."""
    refusals = facts.guards.refusals
    for node in facts.tree.statements:
        if isinstance(node, ast.Try) and any(
            any(may_catch(handler, error) for error in _ERRORS) and not refusals.refuses(handler.body)
            for handler in node.handlers
        ):
            for part in (part for statement in node.body for part in walk(statement)):
                if isinstance(part, (ast.Import, ast.ImportFrom)):
                    yield from (name.rpartition(".")[2] for name in modules_of(part))
                elif isinstance(part, ast.Call):
                    yield last_name(part.func)
