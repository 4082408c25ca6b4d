"""The names of what holds a value: a variable, a parameter, an attribute, a key, an option."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts import Facts, with_defaults
from devicefix.facts.values import cuda_device, declared_names, last_name, target_name

# HParams: https://www.tensorflow.org/versions/r1.15/api_docs/python/tf/contrib/training/HParams
_OBJECTS = {"dict", "Namespace", "SimpleNamespace", "EasyDict", "edict", "AttrDict", "HParams"}


def shared_names(facts: Facts, node: ast.expr) -> Iterator[str]:
    """Yield the names by which other files read a value: of attributes, fields, keys, options and exports."""
    match facts.tree.parents.get(node):
        case ast.Assign(targets=[ast.Name(), *_]) | ast.AnnAssign(target=ast.Name()) if facts.tree.scope(
            node
        ).function:
            return
        case ast.arguments():
            return
        case ast.keyword(arg=str(name)) as keyword if name != "default":
            call = facts.tree.parents[keyword]
            if not (isinstance(call, ast.Call) and last_name(call.func) in _OBJECTS):
                return
    yield from names_of_holders(facts, node)


def names_of_holders(facts: Facts, node: ast.expr) -> Iterator[str]:
    """Yield the names that a value is stored by: a variable's, a parameter's, a key, an option's."""
    parent = facts.tree.parents.get(node)
    match parent:
        case ast.Assign(targets=[target, *_]) | ast.AnnAssign(target=target):
            yield target_name(target)
        case ast.arguments():
            yield from (arg.arg for arg, default in with_defaults(parent) if default is node)
        case ast.Dict(keys=keys, values=values) if node in values:
            key = keys[values.index(node)]
            yield str(key.value) if isinstance(key, ast.Constant) else ""
        case ast.keyword(arg="default"):
            call = facts.tree.parents[parent]
            yield from declared_names(facts, call) if isinstance(call, ast.Call) else ()
        case ast.keyword(arg=str(name)):
            yield name
        case ast.IfExp() | ast.BoolOp() if node is not getattr(parent, "test", None):
            yield from names_of_holders(facts, parent)
        case ast.Call(args=[ast.Constant(value=str(key)), second]) if second is node and last_name(
            parent.func
        ) in ("get", "setdefault"):
            yield key


def only_with_cuda(facts: Facts, node: ast.expr) -> bool:
    """Return whether a value is only used with CUDA, also as that of a CUDA device in a dictionary."""
    table = facts.tree.parents.get(node)
    if isinstance(table, ast.Dict) and node in table.values:
        key = table.keys[table.values.index(node)]
        return facts.is_guarded(node) or (key is not None and cuda_device(facts, key))
    return facts.is_guarded(node)
