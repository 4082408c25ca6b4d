"""The arguments of calls, and the parameters of the functions of a module, as their calls see them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.tree import Tree
from devicefix.facts.values import last_name

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
CALLED = ("forward", "__call__")  # the methods that a call of an object reaches
Place = int | str  # the position of an argument, or its keyword
# The name by which a function is called, and a parameter: its name, and its position, -1 if it has none.
Parameter = tuple[str, tuple[str, int]]


def reads_of(tree: Tree, definition: ast.AST) -> list[ast.expr]:
    """Return where a module reads the name of a function or class of it, but for its own code.

    The name of a module's function as an attribute is something else, as in `model.train()`.
    """
    if not isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return []
    kinds = ast.Name if isinstance(tree.parents[definition], ast.Module) else (ast.Name, ast.Attribute)
    name = called(tree, definition)
    uses = (node for node in tree.nodes_with_name(name) if isinstance(node, kinds))
    reads = (use for use in uses if last_name(use) == name and isinstance(use.ctx, ast.Load))
    return [read for read in reads if definition not in tree.around(read, ast.AST)]


def called(tree: Tree, function: Function | ast.ClassDef) -> str:
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


def arguments_of(call: ast.Call) -> Iterator[tuple[Place, ast.expr]]:
    """Yield the arguments of a call, each with its position or keyword."""
    yield from enumerate(call.args)
    yield from ((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg is not None)


def unpacks(call: ast.Call) -> bool:
    """Return whether a call has arguments such as `*sizes` or `**options`."""
    return has_star(call) or any(each.arg is None for each in call.keywords)


def has_star(call: ast.Call) -> bool:
    """Return whether a call has an argument such as `*sizes`."""
    return any(isinstance(each, ast.Starred) for each in call.args)


def argument_at(tree: Tree, node: ast.expr) -> tuple[ast.Call, Place | None] | None:
    """Return the call that gets an expression as an argument, None if it is none.

    The place there is its position or keyword, None for `**node`, and where `*arguments` come before.
    """
    parent = tree.parents.get(node)
    match parent, tree.parents.get(parent):
        case ast.keyword(arg=name), ast.Call() as call:
            return call, name
        case ast.Call(args=arguments), _ if node in arguments:
            before = arguments[: arguments.index(node)]
            starred = any(isinstance(each, ast.Starred) for each in before)
            return parent, None if starred else len(before)
    return None
