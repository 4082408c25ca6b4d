"""Facts that the syntax of an expression alone shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.facts.flow.order import is_view
from devicefix.facts.values import last_name

_VIEWS = {
    "detach", "view", "view_as", "squeeze", "unsqueeze", "t", "transpose", "permute", "narrow", "select",
    "expand", "expand_as", "reshape", "contiguous", "flatten", "numpy", "requires_grad_", "detach_",
}  # fmt: skip
_ITERATORS = {"iter", "map", "reversed", "values"}
_COLLECTIONS = {"dict", "list", "tuple", "set", "sorted", "OrderedDict"}


def choices(node: ast.expr) -> list[ast.expr] | None:  # noqa: PLR0911 (one case a kind of node)
    """Return the expressions of which an expression is one, as `[x]` for `[x, y][0]`, or None."""
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            return _variables([body, orelse])
        case ast.BoolOp(values=values):
            return _variables(values)
        case ast.NamedExpr(value=value) | ast.Await(value=value):
            return [value]
        case ast.Call(func=ast.Lambda(body=body)):
            return [body]
        case ast.Call(func=ast.Name(id="next"), args=[iterated, *default]):
            found = elements_of(iterated)
            return None if found is None else _variables([*found, *default])
        case ast.Call(func=ast.Attribute(attr="get" | "pop", value=ast.Dict() as value), args=[key, *_]):
            return _items(value, key)
        case ast.Subscript(value=value, slice=key):
            return _items(value, key)
        case ast.Attribute(attr=attr, value=ast.Call() as made):  # `SimpleNamespace(x=x).x`
            given = keyword(made, attr)
            return None if given is None else [given]
    return None


def _variables(nodes: list[ast.expr]) -> list[ast.expr] | None:
    """Return the expressions that are not literals such as None."""
    return [node for node in nodes if not isinstance(node, ast.Constant)] or None


def _items(value: ast.expr, key: ast.expr) -> list[ast.expr] | None:
    """Return the expressions that an item of a display may be, or None."""
    if isinstance(key, (ast.Slice, ast.Tuple)):
        return None
    if isinstance(key, ast.Constant):
        match value:
            case ast.List(elts=elements) | ast.Tuple(elts=elements) if not _starred(elements):
                if isinstance(key.value, int) and key.value < len(elements):
                    return [elements[key.value]]
            case ast.Dict(keys=keys, values=values):
                same = [
                    its
                    for each, its in zip(keys, values, strict=True)
                    if isinstance(each, ast.Constant) and each.value == key.value
                ]
                return same[-1:] or None
    return elements_of(value) or None


def elements_of(node: ast.expr) -> list[ast.expr] | None:
    """Return the expressions that the elements of a collection or iterator are, None if that is not shown."""
    match node:
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return [inner for element in elements for inner in _element(element)]
        case ast.Dict(values=values):
            return values
        case (
            ast.ListComp(elt=element)
            | ast.SetComp(elt=element)
            | ast.GeneratorExp(elt=element)
            | ast.DictComp(value=element)
            | ast.Call(func=ast.Name(id="map"), args=[ast.Lambda(body=element), *_])
        ):
            return [element]
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            return [given.value for given in keywords]
        case ast.Call(func=ast.Attribute(attr="values", value=value), args=[]):
            return elements_of(value)
        case ast.Call(func=function, args=[argument]) if (
            collects(function) or last_name(function) in _ITERATORS
        ):
            return elements_of(argument)
    return None


def element_pairs(target: ast.expr, iterated: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Return the targets of a loop with what they are elements of, through `enumerate`, `items` and `zip`."""
    match target, iterated:
        case ast.Tuple(elts=[_, inner]), ast.Call(func=ast.Name(id="enumerate"), args=[argument, *_]):
            yield from element_pairs(inner, argument)
        case ast.Tuple(elts=[_, inner]), ast.Call(func=ast.Attribute(attr="items", value=value), args=[]):
            yield from element_pairs(inner, value)
        case ast.Tuple(elts=inners), ast.Call(func=ast.Name(id="zip"), args=arguments):
            for inner, argument in zip(inners, arguments, strict=False):
                yield from element_pairs(inner, argument)
        case _:
            yield target, iterated


def _element(node: ast.expr) -> list[ast.expr]:
    return elements_of(node.value) or [] if isinstance(node, ast.Starred) else [node]


def collects(function: ast.expr) -> bool:
    """Return whether a function makes a collection of the elements of its argument."""
    return last_name(function) in _COLLECTIONS


def _starred(elements: list[ast.expr]) -> bool:
    return any(isinstance(element, ast.Starred) for element in elements)


def is_lazy(node: ast.expr) -> bool:
    """Return whether an expression is an iterator, which makes its elements when it is asked for them."""
    if isinstance(node, ast.Call):
        return last_name(node.func) in _ITERATORS
    return isinstance(node, ast.GeneratorExp)


def viewed(node: ast.expr) -> ast.expr | None:
    """Return the expression that an expression is, or is a view of."""
    found = choices(node)
    return _viewed(node) if found is None else found[0]


def viewed_all(node: ast.expr) -> list[ast.expr]:
    """Return the expressions of which an expression is one, or is a view of one."""
    found = choices(node)
    if found is not None:
        return found
    inner = _viewed(node)
    return [] if inner is None else [inner]


def _viewed(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Attribute(value=value) if is_view(node):
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
        case ast.Assign(targets=[ast.Subscript(value=value, slice=index)]) if everything(index):
            return value
    return None


def everything(index: ast.expr) -> bool:
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
