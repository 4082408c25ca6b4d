"""Hooks into pytest and `torch.jit`, which read sources themselves and need the rewritten ones."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from typing import Any

from devicefix.verify.runtime.imported import when_imported
from devicefix.verify.runtime.modules import Modules


def install(modules: Modules) -> None:
    """Make pytest and `torch.jit` read the rewritten sources.

    Args:
        modules: the modules with their sources.
    """
    when_imported("_pytest.assertion.rewrite", lambda: _pytest(modules))
    when_imported("torch._sources", lambda: _torchscript(modules))


def _pytest(modules: Modules) -> None:
    """Patch the assertion rewriting of pytest, which compiles test modules itself and caches the result."""
    rewrite: Any = sys.modules["_pytest.assertion.rewrite"]
    compiled, cached = rewrite._rewrite_test, rewrite._read_pyc

    def rewrite_test(path: Any, config: Any) -> Any:
        tree = modules.tree(str(path))
        if tree is None:
            return compiled(path, config)
        with open(path, "rb") as file:
            rewrite.rewrite_asserts(tree, file.read(), str(path), config)
        return os.stat(path), compile(tree, str(path), "exec", dont_inherit=True)

    def read_pyc(source: Any, *arguments: Any, **options: Any) -> Any:
        return None if modules.rewritten(str(source)) else cached(source, *arguments, **options)

    rewrite._rewrite_test, rewrite._read_pyc = rewrite_test, read_pyc


def _torchscript(modules: Modules) -> None:
    """Patch TorchScript, which compiles a function from the source that `inspect` finds."""
    sources: Any = sys.modules["torch._sources"]
    read = sources.get_source_lines_and_file

    def get_source_lines_and_file(obj: Any, error_msg: str | None = None) -> Any:
        path = inspect.getsourcefile(obj) or ""
        source = modules.rewritten(path) if os.path.isfile(path) else None
        found, first, file = read(obj, error_msg)
        if source is None:
            return found, first, file
        new = [f"{line}\n" for line in modules.text(source).split("\n")]
        return _definition(new, source.origins, first) or found, first, file

    sources.get_source_lines_and_file = get_source_lines_and_file


def _definition(new: list[str], origins: list[int], first: int) -> list[str] | None:
    """Return the rewritten lines of the definition at a line of the user's file, or None."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in ast.walk(ast.parse("".join(new))):
        if isinstance(node, kinds):
            start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if origins[start - 1] == first:
                return new[start - 1 : node.end_lineno]
    return None
