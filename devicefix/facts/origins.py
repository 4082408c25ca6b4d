"""Find the literals that an argument may come from: defaults of parameters and options, and arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.module import Facts
from devicefix.facts.names import option_names
from devicefix.facts.reaching import reaching
from devicefix.facts.scopes import Binding, with_defaults
from devicefix.facts.values import last_name

_HOPS = 4  # from one name to the next
_CALLS = 20  # of one function


def literals(facts: Facts, node: ast.expr | None, hops: int = _HOPS) -> Iterator[ast.Constant]:
    """Yield the literals that an expression may have the value of, as far as the module shows."""
    match node:
        case ast.Constant():
            yield node
        case ast.IfExp(test=test, body=body, orelse=orelse):
            for arm, truth in ((body, True), (orelse, False)):
                if not facts.guards.implies(test, truth):
                    yield from literals(facts, arm, hops)
        case ast.Name() if hops:
            yield from _of_name(facts, node, hops - 1)
        case ast.Attribute(attr=name, value=ast.Name()) if hops and not facts.bindings(node):
            yield from _of_option(facts, name, hops - 1)


def _of_name(facts: Facts, node: ast.Name, hops: int) -> Iterator[ast.Constant]:
    found = facts.tree.scope(node).lookup(node.id)
    bindings = reaching(facts.tree, node, found[1]) if found is not None else ()
    for binding in bindings:
        if not binding.parameter:
            if not facts.is_guarded(binding.node):
                yield from literals(facts, binding.value, hops)
        elif found is not None and len(bindings) == 1:  # else the function may replace what a CPU can't have
            yield from _passed(facts, found[0].node, binding, hops)


def _of_option(facts: Facts, name: str, hops: int) -> Iterator[ast.Constant]:
    """Yield the literals that an option of the command line is by default."""
    for call in facts.tree.nodes_with("add_argument"):
        if isinstance(call, ast.Call) and name in option_names(call):
            default = next((each.value for each in call.keywords if each.arg == "default"), None)
            yield from literals(facts, default, hops)


def _passed(facts: Facts, function: ast.AST, binding: Binding, hops: int) -> Iterator[ast.Constant]:
    """Yield the literals that a parameter may have the value of: its default, and what the module passes."""
    yield from literals(facts, binding.default, hops)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or not isinstance(
        binding.node, ast.arg
    ):
        return
    owner = facts.tree.parents.get(function)
    of_class = isinstance(owner, ast.ClassDef)
    called = owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
    names = [parameter.arg for parameter, _ in with_defaults(function.args)]
    calls = facts.tree.nodes_with_name(called)
    passing = [each for each in calls if isinstance(each, ast.Call) and last_name(each.func) == called]
    for call in passing[:_CALLS]:
        given = dict(zip(names[of_class:], call.args, strict=False))
        given.update((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg)
        if not facts.is_guarded(call):
            yield from literals(facts, given.get(binding.node.arg), hops)
