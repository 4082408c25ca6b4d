"""Show that the number of a GPU becomes the CPU where it comes from or is bound: its uses need no fix."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from devicefix.facts.flow.forwards import Forwards, Use
from devicefix.facts.flow.kinds import NUMBERS, Kind
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.needs import need_of, use_by_function
from devicefix.facts.flow.parameters import argument_at, described, unpacks
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.flow.steps import CALLED, family, related
from devicefix.facts.flow.taken_numbers import is_number
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, Function, dotted
from devicefix.facts.tree import Tree
from devicefix.facts.values import device_name, integer, last_name, without_call

_BUDGET = 50  # expressions that one question looks at
_DEVICES = {Kind.CPU, Kind.CUDA, Kind.DEVICE, Kind.NONE}


class Numbers(Forwards):
    """The ways of the numbers of GPUs, as long as no guard, and no fix of an attribute, makes them the CPU.

    Args:
        facts: the facts of the module, with what the other files show.
    """

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts, zero=True)

    def is_fixed(self, target: ast.Attribute) -> bool:
        """Return whether an attribute that may be bound to a number becomes the CPU."""
        return bound_as_device(Forwards(self.facts), target) is not None


def moves_number(facts: Facts, argument: ast.expr) -> bool:
    """Return whether a function takes an argument for a device, and the number of a GPU as it is."""
    use = use_by_function(Numbers(facts), argument)
    return Use.DEVICE in use and Use.SETTLED not in use


# -- where it comes from --------------------------------------------------------------------------------


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
        if node not in seen and not values.facts.is_guarded(node):
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
            return () if device_name(parent.arg or "") and moves_number(facts, node) else None
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
    return None if variable.attribute and values.facts.others.is_of_heirs(variable.name) else bound


def _passed(facts: Facts, function: Function, parameter: Binding) -> Sequence[ast.expr] | None:
    """Return all that a parameter gets from the calls of the module, and its default.

    It is None if the calls are not known, or where other files may pass the number of a GPU.
    """
    assert isinstance(parameter.node, ast.arg)
    name, place = described(facts.tree, function, parameter.node.arg)
    decorators = (facts.resolve(without_call(each)) or "" for each in function.decorator_list)
    if name in CALLED or name.startswith("__") or not all(each.startswith("torch.") for each in decorators):
        return None
    calls = _calls(facts.tree, name)
    known = [call for call in calls if isinstance(call, ast.Call) and not unpacks(call)]
    if len(known) < len(calls) or not facts.others.passes_only_devices(name, *place):
        return None
    given = (argument_of(call, *place) for call in known)
    return [each for each in (*given, parameter.default) if each is not None]


def _calls(tree: Tree, name: str) -> list[ast.expr]:
    """Return the calls of a function or class, and where its name is read but for that."""
    reads = (each for each in tree.nodes_with_name(name) if isinstance(each, (ast.Name, ast.Attribute)))
    return [tree.call_of(each) or each for each in reads if last_name(each) == name]


# -- where it is bound ----------------------------------------------------------------------------------


def bound_as_device(values: Forwards, node: ast.Attribute) -> ast.expr | None:
    """Return the number of a GPU that an attribute is bound to, once, if it can be the CPU, else None.

    Several moves of its class take it, and nothing else can: all that is done with the objects is known.

    Args:
        values: where the values of the module go.
        node: a use of the attribute, or the target of its assignment.
    """
    facts, path = values.facts, dotted(node)
    if path != f"self.{node.attr}" or path not in facts.tree.attributes:
        return None
    variable = values.variable(node)
    match variable.bindings:
        case [Binding(node=ast.Assign(targets=[_]), value=ast.Name() as value)]:
            kinds, owner = facts.kinds.of(value), next(facts.tree.around(value, ast.ClassDef))
        case _:
            return None
    if NUMBERS.isdisjoint(kinds.seen) or not kinds.shown({*NUMBERS, Kind.NONE, Kind.CUDA}):
        return None
    if len(variable.reads) < 2 or facts.is_guarded(value) or is_settled(values, value):
        return None
    known = all(_only_moves(facts, read) for read in variable.reads) and _is_private(values, owner, node.attr)
    return value if known else None


def _only_moves(facts: Facts, read: ast.expr) -> bool:
    """Return whether a function of torch takes a value for a device, or needs CUDA."""
    call, _ = argument_at(facts.tree, read) or (None, None)
    name = facts.resolve(call.func) or "" if call is not None else ""
    return (
        is_move(call)
        or name.startswith("torch.cuda.")
        or (name.startswith("torch.") and is_device(facts, read))
    )


def _is_private(values: Forwards, owner: ast.ClassDef, name: str) -> bool:
    """Return whether nothing but its class uses an attribute of the objects of a class, and of its heirs."""
    facts, tree = values.facts, values.tree
    heirs = [
        each for each in tree.scopes if isinstance(each, ast.ClassDef) and owner.name in family(facts, each)
    ]
    own = (
        read
        for read in tree.reads("self")
        if related(facts, owner, next(tree.around(read, ast.ClassDef), owner))
    )
    return (
        all(_is_asked(tree.parents.get(read), "") for read in own)
        and not facts.others.is_of_heirs(name)
        and all(
            isinstance(tree.parents.get(made), ast.ClassDef) or is_kept(values, made, name)
            for each in heirs
            for made in _calls(tree, each.name)
        )
        and all(facts.others.keeps(each.name, name) for each in heirs)
    )


def is_kept(values: Forwards, made: ast.expr, name: str) -> bool:
    """Return whether an object that a call makes is only called, or asked for its attributes but one."""
    found = values.of(made)
    return isinstance(made, ast.Call) and not (
        any(
            each.elsewhere and values.facts.others.is_read_elsewhere(each.elsewhere)
            for each in found.variables
        )
        or any(
            not (
                use in found.passed
                or values.tree.call_of(use)
                or _is_asked(values.tree.parents.get(use), name)
            )
            for use in found.uses
        )
    )


def _is_asked(node: ast.AST | None, name: str) -> bool:
    """Return whether a node asks an object for an attribute, but one of a name."""
    return isinstance(node, ast.Attribute) and node.attr not in (name, "__dict__")
