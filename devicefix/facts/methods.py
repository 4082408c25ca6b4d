"""Calls of methods in other forms than `x.cuda()`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from devicefix.facts.module import Facts
from devicefix.facts.values import last_name


def method_called(facts: Facts, node: ast.Call) -> ast.Call | None:
    """Return a call of a method in its plain form, such as `x.cuda()` for `getattr(x, "cuda")()`, or None."""
    match node.func:
        case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(name)), *_]):
            return _plain(node, value, name, node.args)
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *given]) if (
            last_name(function) == "methodcaller" and len(node.args) == 1
        ):
            return _plain(node, node.args[0], name, given)
        case ast.Call(func=function, args=[ast.Attribute() as method, *given]) if (
            last_name(function) == "partial"
        ):
            inner = ast.Call(method, [*given, *node.args], [*node.func.keywords, *node.keywords])
            return method_called(facts, ast.copy_location(inner, node))
        case ast.Attribute(attr=name, value=value):
            if last_name(value) == "Tensor" and node.args and facts.resolve(value) == "torch.Tensor":
                return _plain(node, node.args[0], name, node.args[1:])
            spread = any(isinstance(given, ast.Starred) for given in node.args)
            if spread or any(given.arg is None for given in node.keywords):
                return _plain(node, value, name, node.args)
            return node
    return None


def _plain(node: ast.Call, value: ast.expr, name: str, given: Sequence[ast.expr]) -> ast.Call:
    """Return `value.name(...)` with the arguments of a call; displays with stars are written out."""
    args = [each for one in given for each in _spread(one)]
    keywords = []
    for one in node.keywords:
        if one.arg is None and isinstance(one.value, ast.Dict):
            pairs = zip(one.value.keys, one.value.values, strict=True)
            keywords += [
                ast.keyword(str(key.value), its) for key, its in pairs if isinstance(key, ast.Constant)
            ]
        elif one.arg is None and isinstance(one.value, ast.Call) and last_name(one.value.func) == "dict":
            keywords += one.value.keywords
        else:
            keywords.append(one)
    return ast.copy_location(ast.Call(ast.Attribute(value, name, ast.Load()), args, keywords), node)


def _spread(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Starred) and isinstance(node.value, (ast.List, ast.Tuple)):
        return node.value.elts
    return [node]
