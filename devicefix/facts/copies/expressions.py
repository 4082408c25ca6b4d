"""Facts that the syntax of an expression alone shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.facts.flow import VIEW_ATTRIBUTES
from devicefix.facts.values import last_name

_VIEWS = {
    "detach", "view", "view_as", "squeeze", "unsqueeze", "t", "transpose", "permute", "narrow", "select",
    "expand", "expand_as", "reshape", "contiguous", "flatten", "numpy", "requires_grad_", "detach_",
}  # fmt: skip


def contents(value: ast.expr) -> Iterator[ast.expr]:
    """Return the expressions whose values are kept where `value` is kept."""
    todo = [value]
    while todo:
        value = todo.pop()
        match value:
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                todo += reversed(elements)
            case ast.Dict(values=values):
                todo += reversed(values)
            case ast.ListComp(elt=element):
                todo.append(element)
            case ast.DictComp(value=element):
                todo.append(element)
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
                todo += (given.value for given in reversed(keywords))
            case ast.IfExp(body=body, orelse=orelse):
                todo += (orelse, body)
            case ast.Call(func=function, args=[argument]) if last_name(function) in (
                "dict",
                "list",
                "tuple",
                "OrderedDict",
            ):
                # A generator that nobody has run through yet keeps nothing.
                todo.append(argument.elt if isinstance(argument, ast.GeneratorExp) else argument)
            case _:
                yield value


def viewed(node: ast.expr) -> ast.expr | None:
    """Return the expression that an expression is a view of."""
    match node:
        case ast.Attribute(attr=attr, value=value) if attr in VIEW_ATTRIBUTES:
            return value
        case ast.Call(func=ast.Attribute(attr=attr, value=ast.Name(id="torch")), args=[argument, *_]):
            return argument if attr in _VIEWS else None
        case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr in _VIEWS:
            return value
        case ast.Call(func=function, args=[argument], keywords=[]) if last_name(function) in (
            "Variable",
            "asarray",
        ):
            return argument
        case ast.Call(func=function, args=[argument, *_]) if last_name(function) == "Parameter":
            return argument
        case ast.Subscript(value=value) if not constant_key(node):
            return value
    return None


def assigned_whole(node: ast.AST) -> ast.expr | None:
    """Return the tensor that a statement overwrites with other numbers, or None."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="copy_" | "zero_" | "fill_", value=value))):
            return value
        case ast.Assign(targets=[ast.Subscript(value=value, slice=index)]) if _everything(index):
            return value
    return None


def _everything(index: ast.expr) -> bool:
    """Return whether an index is `:` or `...`."""
    if isinstance(index, ast.Slice):
        return index.lower is None and index.upper is None and index.step is None
    return isinstance(index, ast.Constant) and index.value is Ellipsis


def root(path: str) -> str:
    """Return the name that a path such as `a.b['c']` starts with."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def constant_key(node: ast.Subscript) -> bool:
    """Return whether a subscript is a literal string."""
    return isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)


def in_place(method: str) -> bool:
    """Return whether a tensor's method of this name works on the tensor itself, and returns it."""
    return method.endswith("_") and not method.startswith("_") and not method.endswith("__")


def keyword(node: ast.Call, name: str) -> ast.expr | None:
    """Return the value of a keyword argument."""
    return next((given.value for given in node.keywords if given.arg == name), None)


def names_cpu(node: ast.expr) -> bool:
    """Return whether an expression is the literal name of the CPU."""
    if isinstance(node, ast.Call) and last_name(node.func) == "device" and node.args:
        return names_cpu(node.args[0])
    return isinstance(node, ast.Constant) and node.value == "cpu"
