"""What the uses of a value need it to be, in the module and in the functions of other files."""

from __future__ import annotations

import ast

from devicefix.facts.backends import takes_backend
from devicefix.facts.flow.forwards import Forwards, Use, use_of_import
from devicefix.facts.flow.parameters import Function, Place, argument_at
from devicefix.facts.flow.taken_numbers import takes_number, uses_of
from devicefix.facts.refused_devices import is_refused


def need_of(values: Forwards, use: ast.expr) -> Use:
    """Return what a use needs its value to be."""
    facts, needs = values.facts, Use.NOTHING
    if takes_number(values, use):
        needs |= Use.INDEXED
    if is_refused(facts, use):
        needs |= Use.CPU_REFUSED
    match facts.tree.parents.get(use):
        case ast.Compare(left=left, comparators=[ast.Constant(value=int())]) if left is use:
            needs |= Use.COMPARED
    call, place = argument_at(facts.tree, use) or (None, None)
    if call is not None and place is not None:
        needs |= use_of_import(facts, call.func, place)
        if takes_backend(facts, call.func, place):
            needs |= Use.BACKEND
    return needs


def use_by_function(values: Forwards, argument: ast.expr) -> Use:
    """Return what a function of the module, or an imported one, may do with an argument."""
    call, place = argument_at(values.tree, argument) or (None, None)
    if call is None or place is None:
        return Use.NOTHING
    found = use_of_import(values.facts, call.func, place)
    for function in values.functions(call.func):
        found |= values.use_of_parameter(function, place)
    return found


def use_of_parameter(values: Forwards, function: Function | ast.ClassDef, place: Place) -> Use:
    """Return what a function may do with the value of a parameter, and what it needs that to be."""
    found = values.use_of_parameter(function, place)
    for use in uses_of(values, values.of_parameter(function, place)):
        found |= need_of(values, use)
    return found
