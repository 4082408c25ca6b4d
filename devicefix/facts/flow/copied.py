"""Show that what is loaded is only copied into modules, so that it does not matter where it is loaded to."""

from __future__ import annotations

import ast

from devicefix.facts.flow.forwards import Forwards
from devicefix.facts.flow.kinds import Kind
from devicefix.facts.flow.parameters import argument_at
from devicefix.facts.scopes import dotted

# Of what has a `load_state_dict`, only modules have these. Some optimizers have `eval`, but are not callable.
_OF_MODULES = {"parameters", "named_parameters", "modules", "named_modules", "children", "buffers", "cuda"}
_BINDINGS = 20  # of a variable: the flow follows no more


def is_only_copied(values: Forwards, loaded: ast.expr) -> bool:
    """Return whether a value, as a whole or in parts, certainly goes nowhere but into the states of modules.

    `Module.load_state_dict` copies into the tensors that the module has. Optimizers keep some that they get.
    """
    todo, copied = [loaded], False
    for node in todo:  # which grows
        found = values.of(node)
        if any(len(each.bindings) > _BINDINGS or values.is_shared(each) for each in found.variables):
            return False
        for use in found.uses:
            parent = values.tree.parents.get(use)
            match (values.tree.call_of(parent) if isinstance(parent, ast.Attribute) else None) or parent:
                case (
                    ast.Subscript(value=owner, ctx=ast.Load()) | ast.Call(ast.Attribute(owner, "get"))
                ) as part if owner is use:
                    todo += [part] if part not in todo else []
                case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[keys]) if keys is use:
                    pass
                case _ if _is_copied(values, use):
                    copied = True
                case _:
                    return False
    return copied


def _is_copied(values: Forwards, use: ast.expr) -> bool:
    """Return whether a module copies a state: without `assign`."""
    call, place = argument_at(values.tree, use) or (None, None)
    match call:
        case ast.Call(ast.Attribute(receiver, "load_state_dict"), [] | [_] | [_, ast.Constant()], keywords):
            plain = all(each.arg in ("state_dict", "strict") for each in keywords)
            return plain and place in (0, "state_dict") and _is_module(values, receiver)
    return False


def _is_module(values: Forwards, receiver: ast.expr) -> bool:
    """Return whether an object is a module: by its kind, or by the use of what only modules have."""
    reads = values.variable(receiver).reads if isinstance(receiver, (ast.Name, ast.Attribute)) else ()
    same = [each for each in reads if dotted(each) == dotted(receiver)]
    used = {getattr(values.tree.parents.get(each), "attr", "") for each in same}
    shown = not used.isdisjoint(_OF_MODULES) or ("eval" in used and any(map(values.tree.call_of, same)))
    return shown or values.facts.kinds.of(receiver).without(Kind.NONE).are({Kind.MODULE})
