"""Devices that the program tells apart, by a comparison or as keys: without CUDA, they are all the CPU."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from devicefix.facts.flow.parameters import arguments_of
from devicefix.facts.flow.sinks import takes_device
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.flow.tensors import FUNCTIONS
from devicefix.facts.module import Facts
from devicefix.facts.scopes import LOOPS, Scope, dotted
from devicefix.facts.values import cpu, cuda_device, cuda_string, last_name, receiver, without_call

_HOW = ~(How.OPTION | How.ARGUMENT)
_STEPS = 6
_KEYED = ("add", "count", "fromkeys", "index", "setdefault", "Counter", "groupby", "set", "frozenset")
_WORDS = ("] =", "] +=", "device(", "Enum", *(f"{name}(" for name in _KEYED), "cache")
_TEXT = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1""")
# No comparison with a number or a text, which stands alone.
_COMPARED = re.compile(
    r"""[=!]=(?!\s*(?:\d+|(["'])(?:(?!\1)[^\\])*\1)\s*(?:[]):,]|(?:and|or|if|else)\b|$))"""
)
_Shown = tuple[str, ast.AST]  # a device as it is written, with what shows it


def merged_devices(facts: Facts, _module: Scope) -> dict[ast.AST, int]:
    """Return what shows the devices that must not become one, each with the line that tells them apart."""
    found: dict[ast.AST, int] = {}
    devices = cache(lambda value, of_tensor: list(_devices(facts, value, of_tensor)))
    for place, values in facts.once(_told_apart, facts.tree.root):
        if isinstance(place, ast.Compare) and not (values and devices(values[0], False)):
            continue
        by_tensor = isinstance(place, ast.Call) and ".device" in ast.unparse(place)
        sides = [devices(value, by_tensor) for value in values]
        several = len({name for side in sides for name, _ in side}) > 1
        if several and (all(sides) or not isinstance(place, ast.Compare)):
            found |= {node: place.lineno for side in sides for _, node in side}
    return found


def told_apart(facts: Facts, _module: Scope) -> frozenset[ast.AST]:
    """Return the imports that the program tells apart from others."""
    places = facts.once(_told_apart, facts.tree.root)
    groups = [(values, set(map(facts.resolve, values))) for _, values in places]
    return frozenset(each for values, names in groups if len(names - {None}) > 1 for each in values)


def _told_apart(facts: Facts, _module: Scope) -> list[tuple[ast.expr | ast.stmt, list[ast.expr]]]:
    """Return the places where the program tells values apart, each with the values."""
    return list(_places(facts))


def _places(facts: Facts) -> Iterator[tuple[ast.expr | ast.stmt, list[ast.expr]]]:
    """Yield the places where the program tells values apart, each with the values."""
    stored: defaultdict[str, list[ast.expr]] = defaultdict(list)
    words = facts.tree.words
    lines = {line for word in _WORDS for line in words.lines_with(word)}
    lines |= {line for line in words.lines_with("{") if "{" in _TEXT.sub("", words.lines[line - 1])}
    compared = {*words.lines_with("=="), *words.lines_with("!=")}
    lines |= {line for line in compared if _COMPARED.search(words.lines[line - 1])}
    for node in facts.tree.nodes_at(sorted(lines)):
        match node:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
                yield node, [] if _is_harmless(facts, node) else [left, right]
            case ast.SetComp(elt=key) | ast.DictComp(key=key):
                yield node, [key]
            case ast.Set(elts=keys) | ast.Dict(keys=keys) if len(keys) > 1:
                yield node, [key for key in keys if key and not isinstance(key, ast.Constant)]
            case ast.Subscript(value=owner, slice=key, ctx=ctx):
                first = list(filter(None, getattr(facts.value(owner), "keys", ())))
                is_stored = first or isinstance(ctx, ast.Store)
                name = (dotted(owner) or ast.unparse(owner)) if is_stored or stored else ""
                stored[name] += [key] if is_stored else []
                yield node, [*first, *stored[name][-4:]]
            case ast.Call(func=function, args=arguments) if last_name(function) in _KEYED:
                yield node, [receiver(function), *arguments]
            case ast.ClassDef(bases=bases) if any("Enum" in last_name(base) for base in bases):
                yield node, [each.value for each in node.body if isinstance(each, ast.Assign)]
            case ast.FunctionDef(decorator_list=made, args=ast.arguments(args=parameters)):
                if not {"cache", "lru_cache"}.isdisjoint(last_name(without_call(each)) for each in made):
                    scope = facts.tree.scopes[node]
                    yield from ((node, [*facts.reads_in(scope, each.arg)[:1]]) for each in parameters)


def _is_harmless(facts: Facts, test: ast.Compare) -> bool:
    """Return whether a test only asserts that devices are equal, or that what depends on it only moves."""
    match facts.tree.parents.get(test), test.ops:
        case ast.Assert(), [ast.Eq()]:
            return True
        case ast.If(test=whole, body=body, orelse=[]), [ast.NotEq()] if whole is test:
            moves = [isinstance(each, ast.Assign) and ".to(" in ast.unparse(each.value) for each in body]
            first = body[0].value if isinstance(body[0], ast.Expr) else None
            leaves = isinstance(first, ast.Call) and any(cpu(facts, each) for each in first.args)
            return facts.guards.refusals.refuses(body) or all(moves) or leaves
    return isinstance(test.left, ast.Constant) or isinstance(test.comparators[0], ast.Constant)


def _devices(facts: Facts, value: ast.expr, of_tensor: bool, hops: int = 3) -> Iterator[_Shown]:
    """Yield the devices that a value may be, or those that tensors are on of which it may be the device."""
    is_plain = isinstance(value, ast.Constant) and not (cuda_string(value) or value.value == "cpu")
    for source in () if is_plain else Sources(facts, _HOW, _STEPS).of(value):
        node, shown = source.node, list[_Shown]()
        is_default = isinstance(facts.tree.parents.get(node), ast.arguments)
        if cuda_device(facts, node) or (cpu(facts, node) and not is_default):
            shown = _named(node)
        elif hops and isinstance(node, ast.Call):
            if of_tensor or any(getattr(step.node, "attr", "") == "device" for step in source.way()):
                shown = _of_call(facts, node, hops)
        choices = [step.node for step in source.way() if isinstance(step.node, ast.IfExp)]
        yield from ((name, each) for name, part in shown for each in (part, node, *choices))
        if shown and any(_is_looped(facts, part) for part in ast.walk(node)):
            yield "", node


def _named(device: ast.expr) -> list[_Shown]:
    """Return the device that an expression names, with each part of it: `torch.device("cuda", 1)`."""
    parts = [part for _, part in arguments_of(device)] if isinstance(device, ast.Call) else [device]
    name = ":".join(ast.unparse(part).strip("'") for part in parts).removeprefix("cuda:")
    return [(name, part) for part in parts]


def _of_call(facts: Facts, call: ast.Call, hops: int) -> list[_Shown]:
    """Return the devices on which a call may make a tensor, or to which it may move one."""
    found: list[_Shown] = []
    for place, value in arguments_of(call):
        if takes_device(facts, call.func, place):
            found += list(_devices(facts, value, False, hops - 1)) or [(ast.unparse(value), value)]
    made = {"cuda": "cuda", **dict.fromkeys(FUNCTIONS["new"], "cpu")}.get(last_name(call.func))
    return found or ([(made, call)] if made else [])


def _is_looped(facts: Facts, node: ast.AST) -> bool:
    """Return whether a node is the variable of a loop, which makes several devices of one expression."""
    return isinstance(node, ast.Name) and any(isinstance(each.node, LOOPS) for each in facts.bindings(node))
