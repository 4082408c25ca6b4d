"""Show that the number of a GPU becomes the CPU where it comes from, so that its uses need no fix."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from devicefix.facts.flow.forwards import Forwards, Use
from devicefix.facts.flow.kinds import Kind
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.needs import need_of, use_by_function
from devicefix.facts.flow.parameters import described, unpacks
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.flow.steps import CALLED
from devicefix.facts.flow.taken_numbers import is_number
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, Function
from devicefix.facts.values import device_name, integer, last_name, without_call

_BUDGET = 50  # expressions that one question looks at
_DEVICES = {Kind.CPU, Kind.CUDA, Kind.DEVICE, Kind.NONE}


def becomes_cpu(values: Forwards, node: ast.Call) -> bool:
    """Return whether the fix of `torch.cuda.current_device()` is the CPU, as it is only used as a device."""
    uses = values.of(node).uses
    return not any(counts(values, use) for use in uses) and any(
        is_device(values.facts, use) or is_move(values.tree.parents.get(use)) for use in uses
    )


def is_device(facts: Facts, node: ast.expr) -> bool:
    """Return whether a value is certainly used as a device, where the CPU can replace it."""
    parent = facts.tree.parents.get(node)
    if isinstance(parent, ast.keyword):
        return parent.arg in ("device", "map_location")
    return facts.call(parent, "torch.device")


def is_move(node: ast.AST | None) -> bool:
    """Return whether a node is a call of `.to(...)` or `.cuda(...)`."""
    method = node.func if isinstance(node, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr in ("to", "cuda")


def counts(values: Forwards, node: ast.expr) -> bool:
    """Return whether a value is certainly used as a number: counted with, or compared with one."""
    return is_number(values.facts, node) or Use.COMPARED in need_of(values, node)


def is_settled(values: Forwards, value: ast.expr) -> bool:
    """Return whether a value is no number of a GPU without CUDA, once what it comes from is fixed.

    All its sources are known, in this file and in others. Each is no number, or `torch.cuda.current_device()`
    or an argument `device=0`, whose fixes are the CPU.

    Args:
        values: where the values of the module go.
        value: the expression.
    """
    todo, seen = [value], set[ast.expr]()
    while todo:
        node = todo.pop()
        if node in seen or values.facts.is_guarded(node):
            continue
        seen.add(node)
        sources = _sources(values, node)
        if sources is None or len(seen) > _BUDGET:
            return False
        todo += sources
    return True


def _sources(values: Forwards, node: ast.expr) -> Sequence[ast.expr] | None:
    """Return what a value comes from in one step; none if it is settled, None if it isn't."""
    facts, sources = values.facts, None
    parent = facts.tree.parents.get(node)
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            return body, orelse
        case ast.Call() if facts.call(node, "torch.cuda.current_device"):
            return () if becomes_cpu(values, node) else None
        case ast.Constant() if integer(node) and isinstance(parent, ast.keyword):
            fixed = device_name(parent.arg or "") and Use.DEVICE in use_by_function(values, node)
            return () if fixed else None
        case ast.Name() | ast.Attribute() if facts.resolve(node) is None:
            parameter = Sources(facts, How.BOUND, 1).parameter(node)
            sources = _passed(facts, *parameter) if parameter is not None else _bound(values, node)
    kinds = facts.kinds.of(node)
    if not sources and not kinds.seen:
        return None  # nothing shows who calls
    return sources or (() if kinds.are(_DEVICES) else sources)


def _bound(values: Forwards, node: ast.Name | ast.Attribute) -> Sequence[ast.expr] | None:
    """Return all that a variable is bound to, None if it is not known."""
    variable = values.variable(node)
    bound = [binding.value for binding in variable.bindings if binding.value is not None]
    if not bound or len(bound) < len(variable.bindings) or variable.elsewhere.startswith("."):
        return None
    known = not variable.elsewhere or not values.facts.others.is_bound_elsewhere(variable.elsewhere)
    return bound if known else None


def _passed(facts: Facts, function: Function, parameter: Binding) -> Sequence[ast.expr] | None:
    """Return all that a parameter gets from the calls of the module, and its default.

    It is None if the calls are not known, or where other files may pass the number of a GPU.
    """
    assert isinstance(parameter.node, ast.arg)
    tree = facts.tree
    name, place = described(tree, function, parameter.node.arg)
    decorators = (facts.resolve(without_call(each)) or "" for each in function.decorator_list)
    if name in CALLED or name.startswith("__") or not all(each.startswith("torch.") for each in decorators):
        return None
    reads = (each for each in tree.nodes_with_name(name) if isinstance(each, (ast.Name, ast.Attribute)))
    calls = [tree.call_of(each) for each in reads if last_name(each) == name]
    if not facts.others.passes_only_devices(name, *place):
        return None
    known = [call for call in calls if call is not None and not unpacks(call)]
    given = (argument_of(call, *place) for call in known)
    passed = [each for each in (*given, parameter.default) if each is not None]
    return passed if len(known) == len(calls) else None
