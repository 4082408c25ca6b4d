"""Changes of the parameters of a model."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from functools import cached_property

from devicefix.facts.copies.bodies import Bodies, Function
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, dotted
from devicefix.facts.tree import walk
from devicefix.facts.values import last_name

_SCHEDULERS = ("torch.optim.lr_scheduler.", "torch.profiler.", "transformers.get_")
_LIBRARIES = {"torch", "numpy", "copy", "os", "json", "pickle", "logging", "time", "math", "torchvision"}
_NORMS = ("BatchNorm", "InstanceNorm")
_CALLED_FOR_OTHER_REASONS = {"main", "__init__", "forward", "step", "__call__"}
_DEPTH = 4


class Training:
    """The calls of a module that train a model.

    Args:
        bodies: the bodies of the module.
    """

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._facts = bodies.facts

    def changes(self, node: ast.AST, model: str) -> bool:
        """Return whether a node is a call that changes the parameters of a model."""
        if not isinstance(node, ast.Call):
            return False
        if self.trains(node):
            return True
        if isinstance(node.func, ast.Attribute):
            receiver = dotted(node.func.value) or ""
            if node.func.attr == "load_state_dict":
                return f"{receiver}.".startswith(f"{model}.")
            if node.func.attr == "train" and self._given_to(node.func.value, model):
                return True
        return self._passed_on(node, model) or self._counts(node, model)

    def trains(self, node: ast.AST) -> bool:
        """Return whether a node is a call that takes an optimizer's step."""
        return isinstance(node, ast.Call) and (self.steps(node) or last_name(node.func) in self._stepping)

    def steps(self, node: ast.Call) -> bool:
        """Return whether a call may be the step of an optimizer.

        With an argument (`env.step(action)`), one of the two must be known to be an optimizer.
        """
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "step":
            return False
        if not node.args:
            return not self._facts.once(_all_schedulers, self._facts.bindings(node.func.value))
        return any(dotted(of) in self._zeroed for of in (node.func.value, node.args[0]))

    @cached_property
    def _zeroed(self) -> frozenset[str]:
        """Return the paths of the optimizers: `zero_grad()` is called on them, or torch makes them."""
        found: set[str] = set()
        for node in self._facts.tree.nodes_with("zero_grad"):
            if isinstance(node, ast.Attribute) and node.attr == "zero_grad" and (path := dotted(node.value)):
                found.add(path)
        for node in self._facts.tree.nodes_with("step"):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "step"
            ):
                for of in (node.func.value, *node.args[:1]):
                    path = dotted(of)
                    if path and self._facts.once(_any_optimizer, self._facts.bindings(of)):
                        found.add(path)
        return frozenset(found)

    def _passed_on(self, node: ast.Call, model: str) -> bool:
        """Return whether a model is passed to a function that is not known, and may train it."""
        given = (dotted(argument) for argument in (*node.args, *(each.value for each in node.keywords)))
        return model in given and self._unknown(node.func)

    def _unknown(self, function: ast.expr) -> bool:
        """Return whether nothing is known about a function: it is not of this module, nor of a library."""
        name = last_name(function)
        if name in self._bodies.names or hasattr(builtins, name):
            return False
        return (self._facts.resolve(function) or "").partition(".")[0] not in _LIBRARIES

    def _given_to(self, trainer: ast.expr, model: str) -> bool:
        """Return whether an object was made with a model, by a class that is not of torch."""
        value = self._facts.value(trainer)
        if not isinstance(value, ast.Call):
            return False
        return self._passed_on(value, model)

    def _counts(self, node: ast.Call, model: str) -> bool:
        """Return whether a call is that of a model whose running statistics it changes."""
        return dotted(node.func) == model and self._facts.once(_any_norm, self._facts.bindings(node.func))

    @cached_property
    def _stepping(self) -> frozenset[str]:
        """Return the functions of the module that take an optimizer's step, also through others."""
        found = {function.name for function in self._bodies.functions if self._takes_a_step(function)}
        called = [(function.name, _called(function)) for function in self._bodies.functions] if found else []
        for _ in range(_DEPTH):
            found.update(name for name, names in called if not found.isdisjoint(names))
        return frozenset(found - _CALLED_FOR_OTHER_REASONS)

    def _takes_a_step(self, function: Function) -> bool:
        """Return whether a function takes an optimizer's step."""
        return any(isinstance(node, ast.Call) and self.steps(node) for node in walk(function))


def _called(function: Function) -> set[str]:
    """Return the names of the functions that a function calls."""
    names = {last_name(node.func) for node in walk(function) if isinstance(node, ast.Call)}
    return names - {"step"}


def _all_schedulers(facts: Facts, bindings: Sequence[Binding]) -> bool:
    names = list(_makers(facts, bindings))
    return bool(names) and all(name.startswith(_SCHEDULERS) for name in names)


def _any_optimizer(facts: Facts, bindings: Sequence[Binding]) -> bool:
    return any(
        (name.startswith("torch.optim.") and not name.startswith(_SCHEDULERS)) or name.endswith(".GradScaler")
        for name in _makers(facts, bindings)
    )


def _makers(facts: Facts, bindings: Sequence[Binding]) -> Iterator[str]:
    """Yield the full names of the functions whose results a name is bound to, empty for what is not known."""
    for binding in bindings:
        yield facts.resolve(binding.value.func) or "" if isinstance(binding.value, ast.Call) else ""


def _any_norm(facts: Facts, bindings: Sequence[Binding]) -> bool:
    """Return whether a name is bound to a model that holds running statistics."""
    return any(binding.value is not None and _holds_norm(facts, binding.value) for binding in bindings)


def _holds_norm(facts: Facts, value: ast.expr) -> bool:
    if _names_norm(facts, value):
        return True
    while isinstance(value, ast.Call):  # `Net().cuda()`
        if isinstance(value.func, ast.Name):
            found = facts.tree.scope(value).lookup(value.func.id)
            classes = [binding.node for binding in found[1]] if found else []
            return any(
                isinstance(of, ast.ClassDef) and any(norm in facts.source.code(of) for norm in _NORMS)
                for of in classes
            )
        if not isinstance(value.func, ast.Attribute):
            break
        value = value.func.value
    return False


def _names_norm(facts: Facts, node: ast.expr | ast.ClassDef) -> bool:
    code = facts.source.code(node)
    return any(norm in code for norm in _NORMS)
