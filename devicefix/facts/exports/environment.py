"""Find the statements that set an environment variable of CUDA's driver after torch may be in use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from devicefix.facts.exports.imports import modules_of
from devicefix.facts.module import Facts
from devicefix.facts.values import last_name

# The driver reads these once, when `torch.cuda.is_available()` starts it, and torch its own one in that call:
# https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars. The excluded ones are for builds.
_OF_DRIVER = re.compile(
    r"CUDA_(?!HOME|PATH|ROOT|DIR|BIN|INC|LIB|VERSION|TOOLKIT|ARCH|NVCC)\w+"
    r"|PYTORCH_NVML_BASED_CUDA_CHECK|(?:HIP|ROCR)_VISIBLE_DEVICES"
)


def late_settings(facts: Facts) -> list[ast.stmt]:
    """Return the statements that set an environment variable of CUDA's driver where torch may be in use.

    They are below the import of torch, or in a function.
    """
    if not _OF_DRIVER.search(facts.source.text):
        return []
    first = min(
        (node.lineno for node in facts.tree.module.body if isinstance(node, (ast.Import, ast.ImportFrom))
         and any(_root(name) == "torch" for name in modules_of(node))),
        default=None,
    )  # fmt: skip
    found: list[ast.stmt] = []
    for node in facts.tree.nodes_with("environ", "putenv"):
        if isinstance(node, ast.stmt) and any(map(_is_of_driver, _set_in_environment(facts, node))):
            in_function = facts.tree.scope(node).function is not None
            if in_function or (first is None or node.lineno > first):
                found.append(node)
    return found


def _set_in_environment(facts: Facts, statement: ast.stmt) -> Iterable[ast.AST]:
    """Return the expressions that hold the names of the environment variables that a statement sets."""
    match statement:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            items = [each for each in targets if isinstance(each, ast.Subscript)]
            keys = [each.slice for each in items if last_name(each.value) == "environ"]
            return [facts.value(key) or key for key in keys]
        case ast.AugAssign(target=target, value=value) if last_name(target) == "environ":
            return [value]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr=attr)) as call):
            if attr == "putenv" or (
                last_name(owner) == "environ" and attr in ("setdefault", "update", "pop", "__setitem__")
            ):
                return [call]
    return []


def _is_of_driver(names: ast.AST) -> bool:
    return any(
        (isinstance(node, ast.Constant) and isinstance(node.value, str) and _OF_DRIVER.fullmatch(node.value))
        or (isinstance(node, ast.keyword) and node.arg is not None and _OF_DRIVER.fullmatch(node.arg))
        for node in ast.walk(names)
    )


def _root(name: str) -> str:
    return name.partition(".")[0]
