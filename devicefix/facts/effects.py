"""Find the calls that may do more than return a value: what skips them changes the program."""

from __future__ import annotations

import ast
import re

from devicefix.facts.module import Facts
from devicefix.facts.names import Names
from devicefix.facts.scopes import Scope
from devicefix.facts.values import last_name

ASSIGNING = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
_CALLS = 3  # how many functions of the module to follow
# Functions and methods that only return a value.
_MODULES = (
    "torch.", "os.environ.", "os.getenv", "os.path.", "math.", "numpy.", "deepspeed.comm.get_",
    "horovod.torch.",
)  # fmt: skip
_VALUES = {
    "abs", "bool", "cpu", "dim", "divmod", "float", "format", "get", "get_device", "getattr", "hash", "int",
    "isinstance", "item", "items", "join", "keys", "len", "list", "lower", "max", "min", "range", "replace",
    "round", "size", "split", "startswith", "str", "strip", "sum", "super", "tuple", "values",
}  # fmt: skip
# Methods of tensors, streams and events that have no effect without CUDA.
_OF_CUDA = {
    "cuda", "elapsed_time", "pin_memory", "query", "record", "record_event", "record_stream", "synchronize",
    "to", "wait", "wait_event", "wait_stream",
}  # fmt: skip
# Of those, functions that draw random numbers, write, or set something.
_EFFECTS = re.compile(
    r"torch\.(?:rand|multinomial|bernoulli|normal|poisson|manual_seed|seed|save|set_|use_)"
    r"|torch\.(?:autograd|backends|hub|jit|multiprocessing|nn\.init|random)\.|torch\.distributed\.(?!get_|is_)"
    r"|torch\.nn\.(?:modules\.\w+\.)?(?:Linear|Bilinear|Conv|Embedding|LSTM|GRU|RNN|Multihead|Transformer)"
    r"|torch\.(?!cuda\.).*_\Z|numpy\.(?:random\.|save)"
)
_STATEMENTS = (
    ast.Return, ast.If, ast.Expr, ast.Pass, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom,
)  # fmt: skip


def has_effects(facts: Facts, node: ast.AST, calls: int = _CALLS) -> bool:
    """Return whether code assigns a name, waits, or calls something that may do more than return a value.

    Args:
        facts: the facts of the module.
        node: the code.
        calls: how many functions of the module to follow.
    """
    todo = [node]  # no recursion: expressions may nest deeply
    while todo:
        part = todo.pop()
        if isinstance(part, ASSIGNING):
            return True
        if isinstance(part, ast.Call) and _is_effect(facts, part, calls):
            return True
        if isinstance(part, ast.Attribute) and _computes(facts, part, calls):
            return True
        if not isinstance(part, ast.Lambda):  # whoever gets it may call it
            todo += ast.iter_child_nodes(part)
    return False


def _is_effect(facts: Facts, node: ast.Call, calls: int) -> bool:
    name = facts.resolve(node.func)
    if name is not None and name.startswith(_MODULES):
        return _EFFECTS.match(name) is not None
    if name is not None and facts.others.is_pure(name):
        return False
    own = facts.guards.refusals.own_function(node.func)
    if own is None:
        method = last_name(node.func)
        return method not in _VALUES | _OF_CUDA or (method == "get" and not node.args)  # of a queue
    return not calls or not only_returns(facts, own, calls - 1)


def _computes(facts: Facts, node: ast.Attribute, calls: int) -> bool:
    """Return whether an attribute may be a property of the module that does more than return a value."""
    found = facts.once(_properties, facts.tree.root).get(node.attr, ())
    is_known = (facts.resolve(node) or "").startswith(_MODULES)
    return not is_known and any(not calls or not only_returns(facts, each, calls - 1) for each in found)


def _properties(facts: Names, _: Scope) -> dict[str, list[ast.FunctionDef]]:
    """Return the decorated methods of the module's classes by name: a decorator may make one a property."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in facts.tree.scopes:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            if isinstance(facts.tree.parents.get(node), ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def only_returns(facts: Facts, function: ast.FunctionDef, calls: int = _CALLS) -> bool:
    """Return whether a function of the module does nothing but return a value, or raise an error."""
    inside = (part for statement in function.body for part in ast.walk(statement))
    changes = any(isinstance(part, ast.stmt) and not _is_local(part) for part in inside)
    return not changes and not any(has_effects(facts, statement, calls) for statement in function.body)


def _is_local(statement: ast.stmt) -> bool:
    """Return whether a statement changes nothing but local names, as far as its calls don't."""
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Name) for target in statement.targets)
    return isinstance(statement, _STATEMENTS)
