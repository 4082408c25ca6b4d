"""A rule's context for a small module, and the nodes in it."""

from __future__ import annotations

import ast
import textwrap

from devicefix.config.settings import RuleOptions
from devicefix.devices.accelerator import Accelerator
from devicefix.devices.context import Context
from devicefix.facts import Facts
from devicefix.facts.project import Project, ProjectFile


def context_of(code: str, others: dict[str, str] | None = None, **settings: object) -> Context:
    """Return the context of the module `m.py`.

    Args:
        code: The module, which may be indented and begin with an empty line.
        others: The code of the project's other files, by path.
        settings: Values for `Settings`.
    """
    files = {path: textwrap.dedent(text).lstrip("\n") for path, text in (others or {}).items()}
    files["m.py"] = textwrap.dedent(code).lstrip("\n")
    project = Project(ProjectFile(text.encode(), path) for path, text in files.items())
    facts = Facts.read(files["m.py"].encode())
    return Context(facts.source, facts, project, "m.py", RuleOptions(**settings))  # type: ignore[arg-type]


def expression(of: Context | Accelerator, code: str) -> ast.expr:
    """Return the last expression of a module that has this code, the outermost one."""
    nodes = [node for node in ast.walk(of.facts.tree.module) if isinstance(node, ast.expr)]
    found = [node for node in nodes if of.facts.source.code(node) == code]
    return max(found, key=lambda node: (node.lineno, node.col_offset))


def call(context: Context, code: str) -> ast.Call:
    """Return the last call of a module that has this code."""
    node = expression(context, code)
    assert isinstance(node, ast.Call)
    return node
