"""Find the parts of torch for a type of device that is chosen at run time, such as `torch.cuda`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.flow.kinds import Kind
from devicefix.facts.flow.kinds.calls import results
from devicefix.facts.module import Facts

_DEPTH = 3  # how many names and functions to follow


def is_namespace(facts: Facts, node: ast.expr, depth: int = _DEPTH) -> bool:
    """Return whether an expression is `torch.cuda`, `torch.cpu` or another, by the type of a device.

    Args:
        facts: the facts of the module.
        node: the expression.
        depth: how many names and functions to follow.
    """
    if isinstance(node, ast.Call):
        chosen = _type_of(facts, node)
        if chosen is not None:
            return not (isinstance(chosen, ast.Constant) or facts.kinds.of(chosen).are({Kind.CUDA}))
        if facts.call(node, "torch.get_device_module"):
            return True  # of the accelerator, or else of the CPU
        own = facts.guards.refusals.own_function(node.func)
        return own is not None and depth > 0 and _returns_namespace(facts, own, depth - 1)
    bound = [binding.value for binding in facts.bindings(node)]
    return depth > 0 and any(each is not None and is_namespace(facts, each, depth - 1) for each in bound)


def _type_of(facts: Facts, node: ast.Call) -> ast.expr | None:
    """Return the type of a device by which a call selects a part of torch, None if it does not."""
    match node:
        case ast.Call(func=ast.Name(id="getattr"), args=[module, name, *_]):
            return name if facts.resolve(module) == "torch" else None
        case ast.Call(args=[device]) | ast.Call(keywords=[ast.keyword(value=device)]):
            return device if facts.call(node, "torch.get_device_module") else None
    return None


def _returns_namespace(facts: Facts, function: ast.FunctionDef, depth: int) -> bool:
    returned, _ = facts.once(results, facts.tree.scopes[function])
    return any(is_namespace(facts, each, depth) for each in returned)


def namespace_functions(facts: Facts) -> Iterator[str]:
    """Yield the names of the functions and methods of a module that return such a part of torch."""
    for node in facts.tree.nodes_with("getattr(torch,", "get_device_module("):
        if isinstance(node, ast.Call) and is_namespace(facts, node, 0):
            function = facts.tree.scope(node).node
            if isinstance(function, ast.FunctionDef) and _returns_namespace(facts, function, _DEPTH):
                yield function.name
