"""Find the modules that a file imports, and the names whose errors it catches."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from devicefix.facts.module import Facts
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


def guarded_names(facts: Facts) -> Iterable[str]:
    """Yield the names that a file imports from modules, and that it uses only where CUDA is available."""
    guarded = "\n".join(_under_tests(facts))
    for node in facts.tree.imports if guarded else ():
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("torch"):
            for alias in node.names:
                reads = facts.tree.reads(alias.name) if alias.asname is None and alias.name in guarded else ()
                if reads and all(map(facts.is_guarded, reads)):
                    yield alias.name


def _under_tests(facts: Facts) -> Iterable[str]:
    """Yield the code of the `if` statements whose test names CUDA: to look only there takes less time."""
    lines = facts.tree.text.splitlines()
    for node in facts.tree.of_kind(ast.If):
        if "cuda" in "".join(lines[node.lineno - 1 : node.test.end_lineno]):
            yield "\n".join(lines[node.lineno - 1 : node.end_lineno])


def tried_names(facts: Facts) -> Iterable[str]:
    """Yield the last names of what a `try` statement imports or calls, if it catches such errors."""
    for node in facts.tree.of_kind(ast.Try):
        if any(facts.guards.fallbacks.has_other_result(node, error) for error in _ERRORS):
            for part in (part for statement in node.body for part in walk(statement)):
                if isinstance(part, (ast.Import, ast.ImportFrom)):
                    yield from (name.rpartition(".")[2] for name in modules_of(part))
                elif isinstance(part, ast.Call):
                    yield last_name(part.func)
