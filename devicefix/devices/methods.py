"""Whose `cuda` method a call reaches: torch's, or one that the project has written itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from enum import Enum

from devicefix.devices.context import Context
from devicefix.facts import Binding, Facts, dotted
from devicefix.facts.project import Project
from devicefix.facts.values import last_name


class CustomCuda(Enum):
    """Whether `x.cuda()` reaches a method that the project has written itself."""

    NEVER = 0
    MAYBE = 1
    ALWAYS = 2


def own_cuda(context: Context, receiver: ast.expr) -> CustomCuda:
    """Whether an object is of a class that defines or inherits a `cuda` method of the project's own."""
    own = _own_cuda(context, receiver)
    return own if own is not CustomCuda.NEVER and context.project.has_own_cuda() else CustomCuda.NEVER


def _own_cuda(context: Context, receiver: ast.expr) -> CustomCuda:
    """The same, if there is a class with such a method somewhere."""
    if isinstance(receiver, ast.Call):
        made = _made_by(context.facts, context.project, receiver)
        if made is not None:
            return made
        return (
            CustomCuda.MAYBE if _by_function(context.facts, context.project, receiver) else CustomCuda.NEVER
        )
    if isinstance(receiver, ast.Name) and receiver.id == "self":
        parents = (parent for _, parent in context.facts.tree.ancestors(receiver))
        owner = next((each for each in parents if isinstance(each, ast.ClassDef)), None)
        return (
            CustomCuda.ALWAYS
            if owner is not None and context.project.is_cuda_class(owner.name)
            else CustomCuda.NEVER
        )
    own = context.facts.once(_of_bindings, context.facts.bindings(receiver), context.project)
    if own is not None:
        return own
    held = context.project.holds_cuda_object(last_name(receiver))
    return CustomCuda.MAYBE if held or _module(context, receiver) else CustomCuda.NEVER


def _of_bindings(facts: Facts, bindings: Sequence[Binding], project: Project) -> CustomCuda | None:
    """What is known of an object by what its name is bound to, None for nothing."""
    # `x = x.cuda()` says nothing of what x is.
    values = [each.value for each in bindings if not _moves(each.value)]
    answers = {_made_by(facts, project, value) if isinstance(value, ast.Call) else None for value in values}
    if len(answers) == 1 and None not in answers:
        return answers.pop()
    if any(isinstance(value, ast.Call) and _by_function(facts, project, value) for value in values):
        return CustomCuda.MAYBE
    return CustomCuda.MAYBE if CustomCuda.ALWAYS in answers else None


def _moves(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in ("cuda", "to")


def _made_by(facts: Facts, project: Project, call: ast.Call) -> CustomCuda | None:
    """Whether a call makes an object of a class with a `cuda` of its own; None where that is not known."""
    names = (dotted(call.func) or "").split(".")
    if any(map(project.is_cuda_class, names)):
        return CustomCuda.ALWAYS  # also by a method of the class, such as `Model.load(path)`
    if names[-1][:1].isupper() or (facts.resolve(call.func) or "").startswith("torch."):
        return CustomCuda.NEVER
    return None


def _by_function(facts: Facts, project: Project, call: ast.Call) -> bool:
    """Whether an object comes from a function that may make anything: none of torch's, no method."""
    if _made_by(facts, project, call) is not None:
        return False
    name = facts.resolve(call.func)
    return isinstance(call.func, ast.Name) if name is None else not name.startswith(("torch.", "numpy."))


def _module(context: Context, receiver: ast.expr) -> bool:
    """Whether an object of unknown class is a module: by its name, or as it is moved in place."""
    if dotted(receiver) is None:
        return False
    call = context.facts.tree.parents.get(context.facts.tree.parents[receiver])
    moved_in_place = isinstance(context.facts.tree.parents.get(call), ast.Expr) if call is not None else False
    return moved_in_place or bool(re.search(r"model|net(work)?\Z", last_name(receiver), re.I))
