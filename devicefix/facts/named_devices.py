"""The names of devices among the strings of a module: what they are made of, and what they are given to."""

from __future__ import annotations

import ast
from itertools import islice

from devicefix.facts.flow.sinks import turns_off
from devicefix.facts.flow.steps import text_of_literal
from devicefix.facts.module import Facts
from devicefix.facts.names import Names
from devicefix.facts.scopes import with_defaults
from devicefix.facts.values import cpu, cuda_string, device_name, devices_name, last_name

_WITH_DEFAULT = ("get", "pop", "setdefault", "getattr", "setattr")
_AROUND = 6  # how many expressions may put a string together around its first piece
# They search a text or a container for what they get, or look up an attribute of that name.
_OF_NAMES = {
    "startswith", "endswith", "replace", "count", "index", "find", "hasattr", "delattr", "attrgetter",
    "import_module", "__import__", "__contains__",
}  # fmt: skip


def composed(facts: Facts, node: ast.expr) -> ast.expr | None:
    """Return the whole string that a piece such as `"cuda:"` begins, None if that is no CUDA device.

    Args:
        facts: the facts of the module.
        node: a string literal or an f-string: the whole, or its first piece.
    """
    whole = node if cuda_string(node) else None
    for _, parent in islice(facts.tree.ancestors(node), _AROUND):
        if not isinstance(parent, ast.expr):
            break
        if cuda_string(parent):
            whole = parent
    return whole


def names_device(facts: Facts, value: ast.expr) -> bool:  # noqa: C901, PLR0911 (one case a kind of node)
    """Return whether a value gets the name of a device: as a variable, parameter, key or option."""
    parent = facts.tree.parents.get(value)
    match parent:
        case ast.Assign(targets=targets):
            return any(map(_is_named, targets))
        case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
            return _is_named(target)
        case ast.arguments():
            return any(value is default and device_name(arg.arg) for arg, default in with_defaults(parent))
        case ast.Dict(keys=keys, values=values) if values[place := facts.tree.place(value)] is value:
            return device_name(text_of_literal(keys[place]))
        case ast.Return():
            function = facts.tree.scope(parent).node
            return isinstance(function, ast.FunctionDef) and device_name(function.name)
        case ast.BoolOp() | ast.IfExp():
            return names_device(facts, parent)
        case ast.List() | ast.Tuple() | ast.ListComp() | ast.GeneratorExp():
            return _in_list(facts, parent, value)
        case ast.keyword(arg="default" | "value"):
            call = facts.tree.parents[parent]
            return isinstance(call, ast.Call) and (
                _mentions_device(call) or _offers_both(call) or names_device(facts, call)
            )
        case ast.Call(func=ast.Attribute(value=container, attr="append")):
            return devices_name(last_name(container))
        case ast.Call() if value in parent.args[1:]:
            return last_name(parent.func) in _WITH_DEFAULT and _mentions_device(parent)
    return False


def _in_list(facts: Facts, items: ast.AST, value: ast.expr) -> bool:
    """Return whether an item of a list gets the name of a device, or the list a name of several."""
    parent = facts.tree.parents.get(items)
    if not isinstance(parent, ast.Assign):
        return False
    target = parent.targets[0]
    if isinstance(items, ast.Tuple) and isinstance(target, ast.Tuple):
        pairs = zip(target.elts, items.elts, strict=False)
        return any(element is value and _is_named(name) for name, element in pairs)
    return devices_name(last_name(target))


def _is_named(target: ast.expr) -> bool:
    return device_name(
        text_of_literal(target.slice) if isinstance(target, ast.Subscript) else last_name(target)
    )


def _mentions_device(call: ast.Call) -> bool:
    """Return whether an argument of a call is the name of a device option, such as `"--device"`."""
    return any(device_name(text_of_literal(argument).lstrip("-")) for argument in call.args)


def _offers_both(call: ast.Call) -> bool:
    """Return whether an argument of a call is a list of choices with `"cuda"` and `"cpu"`."""
    arguments = (*call.args, *(keyword.value for keyword in call.keywords))
    lists = (
        set(map(text_of_literal, node.elts)) for node in arguments if isinstance(node, (ast.List, ast.Tuple))
    )
    return any(items >= {"cuda", "cpu"} for items in lists)


def is_passed_on(facts: Facts, node: ast.expr) -> bool:
    """Return whether a value is stored or passed on, and neither the name of something nor a key."""
    parents = facts.tree.parents
    parent = parents.get(node)
    if isinstance(parent, (ast.List, ast.Tuple, ast.Set)):
        outer = parents.get(parent)
        if _limits_option(outer) and not all(map(cuda_string, parent.elts)):
            return False
        return not isinstance(outer, ast.Compare) and not (
            isinstance(outer, ast.Subscript) and parent is outer.slice
        )
    if isinstance(parent, ast.Dict):
        return node not in parent.keys and not isinstance(parents.get(parent), ast.Subscript)
    call = parents.get(parent) if isinstance(parent, ast.keyword) else parent
    if isinstance(call, ast.Call):
        name = last_name(call.func)
        if name in _WITH_DEFAULT or name == "methodcaller":
            return node not in call.args[: 2 if name.endswith("attr") else 1]
        function = call.args[0] if name == "partial" and call.args else call.func
        return name not in _OF_NAMES and not turns_off(facts, function)
    return not isinstance(parent, (ast.Subscript, ast.Compare, ast.Expr))


def _limits_option(node: ast.AST | None) -> bool:
    """Return whether a node gives the values that an option of the command line may have, and none yet."""
    if isinstance(node, ast.keyword):
        return node.arg == "choices"
    return isinstance(node, ast.Call) and last_name(node.func) == "Choice"


def collapses(facts: Facts, value: ast.expr) -> str | None:
    """Return why a value beside others must not become the same as they are, None where it can."""
    parent = facts.tree.parents.get(value)
    if isinstance(parent, (ast.Set, ast.SetComp)):
        return "without CUDA, this element may equal the CPU, so the set has one element fewer"
    owner = facts.tree.scope(value).node
    if isinstance(owner, ast.ClassDef) and any(last_name(base).endswith("Enum") for base in owner.bases):
        return "without CUDA, this member may equal the CPU, and then becomes its alias"
    if isinstance(parent, (ast.List, ast.Tuple)) and facts.once(_holds_cpu, parent.elts):
        return "the list already contains the CPU"
    return None


def _holds_cpu(facts: Names, elements: list[ast.expr]) -> bool:
    return any(cpu(facts, each) for each in elements)
