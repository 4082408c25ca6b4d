"""Changes of the parameters of a model."""

from __future__ import annotations

import ast
import re
from functools import cached_property

from devicefix.facts.copies.bodies import Bodies, Function
from devicefix.facts.scopes import dotted
from devicefix.facts.values import last_name

_OPTIMIZER = re.compile(r"optim|(?:^|[._])opt(?![a-z])|scaler|solver|adam|sgd", re.I)
_TRAINS = re.compile(r"_?(train|fit|finetune|learn)(_|\Z|[A-Z])|run_(train|epoch)")
_CALLED_FOR_OTHER_REASONS = {"main", "__init__", "forward", "step", "__call__"}
_DEPTH = 4


class Training:
    """The calls of a module that train a model.

    Args:
        bodies: the bodies of the module.
    """

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies

    def changes(self, node: ast.AST, model: str) -> bool:
        """Return whether a node is a call that changes the parameters of a model."""
        if not isinstance(node, ast.Call):
            return False
        name = last_name(node.func)
        if isinstance(node.func, ast.Attribute):
            receiver = ast.unparse(node.func.value)
            if name == "load_state_dict":
                return receiver.removesuffix(".module") == model
            if name == "step":
                return bool(_OPTIMIZER.search(receiver)) and "sched" not in receiver.lower()
            if name == "train" and (not node.args or isinstance(node.args[0], ast.Constant)):
                return "trainer" in receiver.lower()
        if name in self._stepping:
            return True
        given = {dotted(argument) for argument in (*node.args, *(keyword.value for keyword in node.keywords))}
        return bool(_TRAINS.match(name)) and model in given

    @cached_property
    def _stepping(self) -> frozenset[str]:
        """Return the functions of the module that take an optimizer's step, also through others."""
        found = {function.name for function in self._bodies.functions if _takes_a_step(function)}
        called = [(function.name, _called(function)) for function in self._bodies.functions] if found else []
        for _ in range(_DEPTH):
            found.update(name for name, names in called if not found.isdisjoint(names))
        return frozenset(found - _CALLED_FOR_OTHER_REASONS)


def _takes_a_step(function: Function) -> bool:
    """Return whether a function takes an optimizer's step."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and _OPTIMIZER.search(ast.unparse(node.func.value))
        for node in ast.walk(function)
    )


def _called(function: Function) -> set[str]:
    """Return the names of the functions that a function calls."""
    names = {last_name(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    return names - {"step"}
