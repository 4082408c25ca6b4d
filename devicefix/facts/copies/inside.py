"""Names that are bound inside an expression: the variables of comprehensions, and parameters of lambdas."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.copies.binding import bound_by, unpacked
from devicefix.facts.copies.expressions import (
    choices,
    collects,
    element_pairs,
    elements_of,
    is_lazy,
    keyword,
)  # fmt: skip
from devicefix.facts.module import Facts
from devicefix.facts.scopes import dotted, with_defaults
from devicefix.facts.values import last_name

_MANY = 500  # expressions in one value
_BINDINGS = 20  # of one name


def contents(facts: Facts, value: ast.expr) -> Iterator[ast.expr]:
    """Return the expressions whose values are kept where `value` is kept."""
    return (expression for expression, _ in kept_in(facts, value))


def kept_in(facts: Facts, value: ast.expr) -> Iterator[tuple[ast.expr, bool]]:
    """Return the expressions whose values are kept where `value` is kept, and whether in a collection."""
    todo, seen = [(value, False)], 0
    while todo:
        value, contained = todo.pop()
        seen += 1
        inside = choices(value) or bound_inside(facts, value)
        # A generator that nobody has run through yet keeps nothing.
        if inside is None and not is_lazy(value):
            inside = elements_of(value)
            match value:
                case ast.Call(func=function, args=[argument]) if inside is None and collects(function):
                    inside = [argument]
            contained = contained or inside is not None
        if inside is None or seen > _MANY:
            yield value, contained
        else:
            todo += ((each, contained) for each in reversed(inside))


def bound_inside(facts: Facts, node: ast.expr) -> list[ast.expr] | None:
    """Return the expressions that a name is bound to in the expression around it, or None.

    Such a name is a variable of a comprehension over a display, or a parameter of a lambda that is called.
    """
    if not isinstance(node, ast.Name):
        return None
    found = facts.tree.scope(node).lookup(node.id)
    if found is None or len(found[1]) != 1:
        return None
    binding = found[1][0]
    if isinstance(binding.node, ast.comprehension):
        loop = binding.node
        return [
            value
            for target, iterated in element_pairs(loop.target, loop.iter)
            for element in elements_of(iterated) or ()
            for name, value in unpacked(target, element)
            if isinstance(name, ast.Name) and name.id == node.id
        ] or None
    owner = found[0].node
    return _passed(facts, owner, node.id) if binding.parameter and isinstance(owner, ast.Lambda) else None


def _passed(facts: Facts, function: ast.Lambda, name: str) -> list[ast.expr] | None:
    """Return what a lambda's parameter is, where the lambda is called in the expression that makes it."""
    call = facts.tree.parents.get(function)
    names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
    default = next((value for arg, value in with_defaults(function.args) if arg.arg == name), None)
    if not isinstance(call, ast.Call):
        return None
    if call.func is function:
        given = keyword(call, name)
        if given is None and name in names and names.index(name) < len(call.args):
            given = call.args[names.index(name)]
        given = given or default
        return None if given is None or isinstance(given, ast.Starred) else [given]
    if last_name(call.func) == "map" and name in names and names.index(name) + 1 < len(call.args):
        return elements_of(call.args[names.index(name) + 1])
    return None


def values_of(facts: Facts, node: ast.expr) -> list[ast.expr | None]:
    """Return the expressions that a name or path is bound to, None for a value that is not shown.

    What an augmented assignment does to a tensor or array leaves it where it is, and of its dtype.
    """
    found: list[ast.expr | None] = []
    bindings = facts.bindings(node)
    if len(bindings) > _BINDINGS:
        return [None]
    for binding in bindings:
        if isinstance(binding.node, ast.AugAssign):
            continue
        values = [binding.value] if binding.value is not None else _bound_to(facts, binding.node, node)
        if not values:
            found.append(None)
        for value in values:
            found += contents(facts, value)
    return [value for value in found if not (isinstance(value, ast.Constant) and value.value is None)]


def _bound_to(facts: Facts, node: ast.AST, path: ast.expr) -> list[ast.expr]:
    """Return the values that a part of a statement binds a name or path to."""
    return [value for target, value in bound_by(facts, node) if dotted(target) == dotted(path)]
