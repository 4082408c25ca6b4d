"""Show that the number of a GPU becomes the CPU where it comes from or is bound: its uses need no fix."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from weakref import proxy

from devicefix.facts.effects import has_effects
from devicefix.facts.flow.forwards import Forwards, Use, use_of_import
from devicefix.facts.flow.kinds import NUMBERS, Kind
from devicefix.facts.flow.kinds.parameters import argument_of, calls_of_object
from devicefix.facts.flow.needs import need_of, use_by_function
from devicefix.facts.flow.parameters import CALLED, Place, argument_at, described, unpacks
from devicefix.facts.flow.sinks import takes_device
from devicefix.facts.flow.steps import family, related
from devicefix.facts.flow.taken_numbers import is_number
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, Function, Scope, dotted
from devicefix.facts.values import cuda_string, device_name, integer, last_name, receiver, without_call

_KEYWORDS = {"device", "map_location"}
_PRINTS = {"print", "info", "debug", "warning"}
_OWN = ("cls", "__class__")  # the class, in its methods
_VISITED = re.compile("cuda|device|gpu|rank")  # what a line holds that rules look at
_BUDGET = 50  # expressions that one question looks at
_DEVICES = {Kind.CPU, Kind.CUDA, Kind.DEVICE, Kind.NONE}


class Numbers(Forwards):
    """The ways of the numbers of GPUs, until a guard or the fix of an attribute makes them the CPU."""

    def is_fixed(self, target: ast.Attribute) -> bool:
        """Return whether an attribute that may be bound to a number becomes the CPU."""
        return bound_as_device(self, target) is not None


def moves_number(facts: Facts, argument: ast.expr) -> bool:
    """Return whether a function takes an argument for a device, and the number of a GPU as it is."""
    use = use_by_function(facts.once(numbers, facts.tree.root), argument)
    return Use.DEVICE in use and Use.SETTLED not in use


def numbers(facts: Facts, _module: Scope) -> Numbers:
    """Return the ways of the numbers of a module, which the facts can hold."""
    return Numbers(proxy(facts), zero=True)


# -- where it comes from --------------------------------------------------------------------------------


def has_own_fix(values: Forwards, argument: ast.expr) -> bool:
    """Return whether the number of a GPU becomes the CPU where a call passes it to a function for a device.

    The function also gets other devices, or the one around the call moves to the number several times.
    """
    facts, tree, name = values.facts, values.tree, last_name(argument)
    call, place = argument_at(tree, argument) or (None, None)
    if call is None or place is None or is_move(call) or "cuda" not in tree.text:
        return False
    if isinstance(argument, ast.Constant) or not _VISITED.search(tree.words.lines[argument.lineno - 1]):
        return False
    if (facts.resolve(call.func) or "").startswith("torch."):
        return False
    function = values.reached(call)
    kinds = facts.kinds.of(argument)
    if NUMBERS.isdisjoint(kinds.seen) or not kinds.shown({*NUMBERS, Kind.NONE, Kind.CUDA, Kind.CPU}):
        return False
    use = only_device(values, function, place) if function else _use_of_import(facts, call.func, place)
    if Use.ONLY_DEVICE not in use and (function or use or place != "device"):
        return False
    found = tree.lookup(argument) if isinstance(argument, ast.Name) else None
    return Use.CHOSEN in use or (found is not None and facts.once(is_moved_to_often, found[0], name))


def _use_of_import(facts: Facts, function: ast.expr, place: Place) -> Use:
    """Return what an imported function does with an argument, or that of an object of an imported class."""
    owner, name = receiver(function), getattr(function, "attr", "__call__")
    classes = facts.kinds.of(owner).classes if facts.resolve(function) is None else ()
    if len(classes) != 1:
        return use_of_import(facts, function, place)
    return Use(facts.others.use_of_argument(f"{min(classes)}.{name}", place))


def only_device(values: Forwards, function: ast.AST, place: Place) -> Use:
    """Return whether a parameter of a function is only used as a device, and whether it may be the CPU."""
    assert isinstance(function, Function | ast.Lambda)
    facts, found = values.facts, values.of_parameter(function, place)
    free = facts.once(numbers, facts.tree.root).use_of_parameter(function, place)
    if Use.DEVICE not in free or _is_decorated(facts, function):
        return Use.NOTHING
    others = (use for use in found.uses if use not in found.passed and not is_device(facts, use))
    if any(is_move(values.tree.parents[use]) or not _takes_either(facts, use) for use in others):
        return Use.NOTHING
    if any(is_other_device(facts, read) for each in found.variables for read in each.reads[:1]):
        return Use.ONLY_DEVICE | Use.CHOSEN
    return Use.NOTHING if any(map(values.is_shared, found.variables)) else Use.ONLY_DEVICE


def _is_decorated(facts: Facts, function: ast.AST) -> bool:
    """Return whether a decorator may change what a function gets."""
    decorators = getattr(function, "decorator_list", ())
    return not all((facts.resolve(without_call(each)) or "").startswith("torch.") for each in decorators)


def is_moved_to_often(facts: Facts, scope: Scope, name: str) -> bool:
    """Return whether a name is a variable of a function that moves to it several times, as by `x.cuda(name)`.

    It is a parameter, or gets its value in a statement of the function's body, and never another one. It may
    be the module's as well.
    """
    tree, (binding, *others) = facts.tree, scope.bindings[name]
    if others or name in tree.declared_elsewhere or not isinstance(scope.node, Function | ast.Module):
        return False
    match binding.node:
        case ast.Assign(targets=[ast.Name()]) as statement if tree.parents.get(statement) is scope.node:
            pass
        case _ if not binding.parameter:
            return False
    if any(tree.scope(read).function is scope for read in tree.reads("locals")):
        return False
    reads = (read for read in facts.reads_in(scope, name) if _is_moved_to(facts, read))
    return sum(scope.is_module or tree.scope(each).function is scope for each in reads) > 1


def _is_moved_to(facts: Facts, target: ast.expr) -> bool:
    """Return whether an expression is the device argument of a call that moves, which no guard protects."""
    parent = facts.tree.parents.get(target)
    is_first = is_move(parent) and parent.args[:1] == [target]  # type: ignore[union-attr]
    return (is_first or getattr(parent, "arg", "") == "device") and not facts.is_guarded(target)


def becomes_cpu(values: Forwards, node: ast.Call) -> bool:
    """Return whether the fix of `torch.cuda.current_device()` is the CPU, as it is only used as a device."""
    uses = values.of(node).uses
    if any(counts(values, use) for use in uses):
        return False
    moves = any(_is_placed(values, use) or is_move(values.tree.parents.get(use)) for use in uses)
    return moves or (bool(uses) and all(_is_of_cuda(values.facts, use) for use in uses))


def _is_placed(values: Forwards, node: ast.expr) -> bool:
    """Return whether a value is used as a device, where the CPU can replace it."""
    call, place = argument_at(values.tree, node) or (None, None)
    if call is not None and place is not None and takes_device(values.facts, call.func, place):
        return True
    held = isinstance(values.tree.parents.get(node), (ast.Dict, ast.keyword))
    return held and Use.DEVICE in values.use_of(node)


def _is_of_cuda(facts: Facts, node: ast.expr) -> bool:
    """Return whether a value is an argument of a function of torch.cuda."""
    call, _ = argument_at(facts.tree, node) or (None, None)
    return call is not None and (facts.resolve(call.func) or "").startswith("torch.cuda.")


def is_device(facts: Facts, read: ast.expr) -> bool:
    """Return whether a use takes a device: `.to(x)`, `device=x`, `{"device": x}`, `torch.device(x)`."""
    parent = facts.tree.parents.get(read)
    match parent:
        case ast.Call(func=ast.Attribute(attr="to"), args=[first, *_]) if first is read:
            return True
        case ast.keyword(arg=keyword):
            return keyword in _KEYWORDS
        case ast.Dict(keys=keys, values=values) if read in values:
            key = keys[values.index(read)]
            return isinstance(key, ast.Constant) and key.value in _KEYWORDS
        case ast.Call(args=[only], keywords=[]) if only is read:
            return facts.resolve(parent.func) == "torch.device"
    return False


def is_move(node: ast.AST | None) -> bool:
    """Return whether a node is a call of `.to(...)` or `.cuda(...)`."""
    method = node.func if isinstance(node, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr in ("to", "cuda")


def counts(values: Forwards, node: ast.expr) -> bool:
    """Return whether a value is certainly used as a number: counted with, or compared with one."""
    return is_number(values.facts, node) or Use.COMPARED in need_of(values, node)


def is_settled(values: Forwards, value: ast.expr, *, passed: bool = True) -> bool:
    """Return whether a value is no number of a GPU without CUDA, once what it comes from is fixed.

    All its sources are known, in this file and in others. Each is no number, or one whose fix is the CPU:
    `torch.cuda.current_device()`, an argument `device=0`, or what a variable is bound to.

    Args:
        values: where the values of the module go.
        value: the expression.
        passed: whether arguments of the module's calls have fixes.
    """
    todo = [value]
    for node in todo:  # which grows
        sources = [] if values.facts.is_guarded(node) else _sources(values, node, passed)
        if sources is None or len(todo) > _BUDGET:
            return False
        todo += [each for each in sources if each not in todo]
    return True


def _sources(values: Forwards, node: ast.expr, passed: bool) -> Sequence[ast.expr] | None:
    """Return what a value comes from in one step: nothing if it is no number, None if that isn't known."""
    facts, kinds = values.facts, values.facts.kinds.of(node)
    parent = facts.tree.parents.get(node)
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.Call() if facts.call(node, "torch.cuda.current_device"):
            return [] if becomes_cpu(values, node) else None
        case ast.Attribute(attr="device", value=ast.Call(func=ast.Name("next"))):  # of a module's parameters
            return []
        case ast.Constant() if passed and integer(node) and isinstance(parent, ast.keyword):
            fixed = device_name(parent.arg or "") and not facts.serves_others
            return [] if fixed and moves_number(facts, node) else None
        case ast.Name() | ast.Attribute() if kinds.seen and facts.resolve(node) is None:
            if bound_as_device(values, node) is not None:
                return []
            variable = values.variable(node)
            is_number = not NUMBERS.isdisjoint(kinds.seen)
            bound = [_bound(values, each, is_number, passed) for each in variable.bindings]
            heirs = variable.attribute and facts.others.is_read_elsewhere(f"super.{variable.name}")
            if bound and None not in bound and not heirs and variable.elsewhere[:1] != ".":
                return [value for each in bound for value in each or ()]
    return [] if kinds.are(_DEVICES) or (not kinds.seen and is_other_device(facts, node)) else None


def is_other_device(facts: Facts, value: ast.expr) -> bool:
    """Return whether a value may be another device than that of a number: the CPU, or that of an object."""
    kinds, is_attribute = facts.kinds.of(value), isinstance(value, ast.Attribute) and value.attr == "device"
    return bool(kinds.can_be(Kind.CPU) or kinds.can_be(Kind.DEVICE)) or (is_attribute and not kinds.seen)


def _bound(values: Forwards, binding: Binding, is_number: bool, passed: bool) -> Sequence[ast.expr] | None:
    """Return what a variable is bound to: all that a parameter gets in the module.

    None if it isn't known, or a number in other files.
    """
    facts, parameter = values.facts, binding.node
    if binding.value is not None or not isinstance(parameter, ast.arg):
        return [binding.value] if binding.value is not None else None
    function = facts.tree.parents[facts.tree.parents[parameter]]
    if not isinstance(function, Function):
        return None
    name, place = described(facts.tree, function, parameter.arg)
    owner = facts.tree.parents[function]
    calls = _calls(facts, name, *(_OWN if function.name == "__init__" else ()))
    if name in CALLED and isinstance(owner, ast.ClassDef):
        made, name = _calls(facts, owner.name), f"{owner.name}()"
        calls = [call for each in made if isinstance(each, ast.Call) for call in calls_of_object(facts, each)]
    given = None if name.startswith("__") or _is_decorated(facts, function) else arguments(calls, *place)
    if given is None or not facts.others.gives(name, *place):
        return None
    found = [*given, *filter(None, [binding.default])]
    shown = any(not NUMBERS.isdisjoint(facts.kinds.of(each).seen) for each in found)
    if is_number and not shown and not facts.others.passed(name, *place):
        return None  # nothing shows where it comes from
    return [each for each in found if not (passed and has_own_fix(values, each))]


def arguments(calls: Sequence[ast.expr], parameter: str, position: int) -> list[ast.expr] | None:
    """Return what calls pass for a parameter, None if one is no call, or may hide what it passes."""
    given = (argument_of(each, parameter, position) for each in calls if isinstance(each, ast.Call))
    plain = all(isinstance(each, ast.Call) and not unpacks(each) for each in calls)
    return [each for each in given if each is not None] if plain else None


def _calls(facts: Facts, name: str, *made: str) -> list[ast.expr]:
    """Return the calls of a function or class, and where its name is read but for that.

    Args:
        facts: the facts of the module.
        name: the name.
        made: other names, that only count where they are called.
    """
    tree = facts.tree
    nodes = [(each, read) for read in (name, *made) for each in tree.nodes_with_name(read)]
    reads = [each for each, read in nodes if isinstance(each, ast.expr) and last_name(each) == read]
    return [tree.call_of(each) or each for each in reads if last_name(each) == name or tree.call_of(each)]


# -- where it is bound ----------------------------------------------------------------------------------


def bound_as_device(values: Forwards, node: ast.Name | ast.Attribute) -> ast.expr | None:
    """Return the number that a variable is bound to, if all its uses take a device as well, else None.

    Where it is also bound to the name of a device, that has a fix of its own, or needs none. An attribute is
    taken by several moves of its class, and all that is done with the objects is known.

    Args:
        values: where the values of the module go.
        node: a use of the variable, or the target of its assignment.
    """
    facts, is_name = values.facts, isinstance(node, ast.Name)
    if is_name and last_name(node) in facts.tree.declared_elsewhere:
        return None
    bindings = facts.tree.bound(node) if is_name else values.variable(node).bindings  # no reads are asked for
    match [each.node for each in bindings if not _names_device(each.value)]:
        case [
            ast.Assign(targets=[ast.Name() | ast.Attribute(value=ast.Name("self")) as target], value=number)
        ]:
            known = facts.once(_only_moves, facts.tree.root, target, number)
            return number if known and not facts.is_guarded(number) else None
    return None


def _only_moves(facts: Facts, _module: Scope, target: ast.Name | ast.Attribute, number: ast.expr) -> bool:
    """Return whether a variable holds a number, and only moves and calls of CUDA use it."""
    kinds, values = facts.kinds.of(number), Forwards(facts)
    if NUMBERS.isdisjoint(kinds.seen) or not kinds.shown(NUMBERS | {Kind.NONE, Kind.CUDA}):
        return False
    variable = values.variable(target)
    devices = [read for read in variable.reads if is_device(facts, read)]
    others = (read for read in variable.reads if read not in devices)
    if not devices or has_effects(facts, number) or not all(_takes_either(facts, read) for read in others):
        return False
    if not variable.attribute:
        return kinds.are(NUMBERS) and "." not in variable.elsewhere and not values.is_shared(variable)
    several = sum(dotted(read) == dotted(target) for read in devices) > 1 == len(variable.bindings)
    needed = several and not facts.serves_others and not is_settled(values, number, passed=False)
    return needed and _is_private(values, target, variable.name)


def _names_device(value: ast.expr | None) -> bool:
    """Return whether a value is the name of a device, or one of two."""
    match value:
        case ast.IfExp(body=body, orelse=orelse):
            return _names_device(body) and _names_device(orelse)
    return isinstance(value, ast.Constant) and (value.value == "cpu" or cuda_string(value))


def _takes_either(facts: Facts, read: ast.expr) -> bool:
    """Return whether a use needs CUDA, so that it gets a condition of its own, or only prints."""
    parent = facts.tree.parents.get(read)
    match parent:
        case ast.FormattedValue() | ast.keyword(arg="output_device"):
            return True
        case ast.Call(func=called):
            name = facts.resolve(called) or ""
            return last_name(called) in _PRINTS or name.startswith("torch.cuda.") or is_move(parent)
        case ast.List(elts=[_]):
            outer = facts.tree.parents.get(parent)
            return isinstance(outer, ast.keyword) and outer.arg == "device_ids"
    return False


def _is_private(values: Forwards, target: ast.expr, name: str) -> bool:
    """Return whether only the class, and its heirs, use an attribute of their objects."""
    facts, tree = values.facts, values.tree
    owner = next(tree.around(target, ast.ClassDef), None)
    if owner is None:
        return False  # a function that becomes a method
    classes = [each for each in tree.scopes if isinstance(each, ast.ClassDef) and related(facts, owner, each)]
    imported = (facts.resolve(base) or "torch." for each in classes for base in each.bases)
    heirs = [each.name for each in classes if owner.name in family(facts, each)]
    leaks = (each for each in tree.reads("self") if not _is_asked(tree.parents[each], ""))
    made = (each for heir in heirs for each in _calls(facts, heir, *_OWN))
    return (
        all(each.startswith(("torch.", "abc.")) for each in imported)
        and not any(related(facts, owner, next(tree.around(each, ast.ClassDef), None)) for each in leaks)
        and all(isinstance(tree.parents[each], ast.ClassDef) or is_kept(values, each, name) for each in made)
        and all(facts.others.gives(heir, f".{name}") for heir in heirs)
    )


def is_kept(values: Forwards, made: ast.expr, name: str) -> bool:
    """Return whether an object that a call makes is only called, or asked for its attributes but one."""
    found, tree = values.of(made), values.tree
    uses = (use for use in found.uses if use not in found.passed and tree.call_of(use) is None)
    kept = isinstance(made, ast.Call) and all(_is_asked(tree.parents[use], name) for use in uses)
    return kept and not any(map(values.is_shared, found.variables))


def _is_asked(node: ast.AST, name: str) -> bool:
    """Return whether a node asks an object for an attribute, but one of a name."""
    return isinstance(node, ast.Attribute) and node.attr not in (name, "__dict__")
