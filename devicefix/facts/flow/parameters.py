"""The parameters of the functions of a module, as their calls see them."""

from __future__ import annotations

import ast

from devicefix.facts.tree import Tree
from devicefix.facts.values import last_name

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
# The name by which a function is called, and a parameter: its name, and its position, -1 if it has none.
Parameter = tuple[str, tuple[str, int]]


def called(tree: Tree, function: Function) -> str:
    """Return the name by which a function is called: of the class for `__init__`, empty for a lambda."""
    if isinstance(function, ast.Lambda):
        return ""
    owner = tree.parents.get(function)
    return owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name


def positional(tree: Tree, function: Function) -> list[ast.arg]:
    """Return the parameters that the arguments of a call get by their position: without `self`."""
    found = [*function.args.posonlyargs, *function.args.args]
    if not isinstance(tree.parents.get(function), ast.ClassDef) or isinstance(function, ast.Lambda):
        return found
    is_static = any(last_name(decorator) == "staticmethod" for decorator in function.decorator_list)
    return found if is_static else found[1:]


def described(tree: Tree, function: Function, name: str) -> Parameter:
    """Return a parameter as the calls of its function see it."""
    names = [parameter.arg for parameter in positional(tree, function)]
    return called(tree, function), (name, names.index(name) if name in names else -1)
