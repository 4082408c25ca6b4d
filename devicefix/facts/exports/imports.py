"""Find the modules that a file imports, and the names whose errors it catches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from devicefix.facts.exports.export import of_facts
from devicefix.facts.module import Facts
from devicefix.facts.tree import walk
from devicefix.facts.values import last_name

# What code that refuses to run without CUDA may raise.
_ERRORS = ("AssertionError", "RuntimeError", "ValueError", "OSError", "SystemExit")

# They begin with a word, which is found fast: every file of a project is searched, and to parse it takes 50
# times as long. What a docstring quotes is found, too.
_FROM = re.compile(rb"from[ \t]+([\w.]+)[ \t]+import[ \t]*(?:\(([^)]*)|((?:[\w*, \t]|\\\r?\n)*))")
_IMPORT = re.compile(rb"import[ \t]+([\w., \t]+)")
_COMMENT = re.compile(rb"#[^\n]*|\\")


def imports_in(data: bytes) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the modules that a file's bytes import, and those of them that it imports everything from.

    They are absolute (`a.b`) or relative (`..b`); `from a import b` gives `a` and `a.b`.
    """
    found: set[str] = set()
    stars: list[str] = []
    for each in _IMPORT.finditer(data):
        before = data[data.rfind(b"\n", 0, each.start()) + 1 : each.start()].rstrip()
        if not before or before.endswith((b";", b":")):
            found.update(part.split()[0].decode() for part in each[1].split(b",") if part.strip())
    for module, in_parentheses, on_line in _FROM.findall(data):
        base = module.decode()
        found.add(base)
        joint = "" if base.endswith(".") else "."
        names = _COMMENT.sub(b"", in_parentheses or on_line).decode(errors="replace")
        for name in (part.split()[0] for part in names.split(",") if part.strip()):
            if name == "*":
                stars.append(base)
            else:
                found.add(f"{base}{joint}{name}")
    return frozenset(found), tuple(stars)


def full_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the full names of what an import binds."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = "." * node.level + (node.module or "")
    joint = "" if module.endswith(".") else "."
    return [f"{module}{joint}{alias.name}" for alias in node.names]


def modules_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that an import statement reads, and the names that it takes from one."""
    names = [name for name in full_names(node) if not name.endswith("*")]
    return names if isinstance(node, ast.Import) else ["." * node.level + (node.module or ""), *names]


@of_facts(b"cuda", b"gpu", pattern=rb"\n[ \t]+(?:from|import)[ \t]", anywhere=True)
def guarded_imports(facts: Facts) -> frozenset[str]:
    """Return the modules that a file imports only where CUDA is available."""
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for node in facts.tree.of_kind(ast.Import, ast.ImportFrom):
        found[facts.is_guarded(node)].update(modules_of(node))  # type: ignore[arg-type]  # one of the two
    return frozenset(found[True] - found[False])


@of_facts(anywhere=True)
def needed_imports(facts: Facts) -> tuple[str, ...]:
    """Return what a file imports at its top, under no condition and without a handler."""
    top = (node for node in facts.tree.imports if facts.tree.parents.get(node) is facts.tree.module)
    return tuple(sorted({name for node in top for name in modules_of(node)}))


@of_facts(b"try:", b"try ", anywhere=True)
def tried_names(facts: Facts) -> frozenset[str]:
    """Return the last names of what a `try` statement imports or calls, if it catches such errors."""
    return frozenset(_tried(facts))


def _tried(facts: Facts) -> Iterable[str]:
    for node in facts.tree.of_kind(ast.Try):
        has_other_result = facts.guards.fallbacks.has_other_result
        if any(has_other_result(handler, error) for handler in node.handlers for error in _ERRORS):
            for part in (part for statement in node.body for part in walk(statement)):
                if isinstance(part, (ast.Import, ast.ImportFrom)):
                    yield from (name.rpartition(".")[2] for name in modules_of(part))
                elif isinstance(part, ast.Call):
                    yield last_name(part.func)
