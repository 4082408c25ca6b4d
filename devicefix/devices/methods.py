"""The `cuda` method that a call reaches: torch's, or one that the project defines."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from enum import Enum

from devicefix.devices.context import Context
from devicefix.facts import Binding, Facts, dotted
from devicefix.facts.project import Project
from devicefix.facts.values import last_name

_MODULE_NAME = re.compile(r"model|net(work)?\Z", re.I)


class CustomCuda(Enum):
    """Whether `x.cuda()` reaches a method that the project defines."""

    NEVER = 0
    MAYBE = 1
    ALWAYS = 2


def custom_cuda(context: Context, receiver: ast.expr) -> CustomCuda:
    """Return whether the class of a receiver defines or inherits a `cuda` method of the project."""
    answer = _if_any_class_has_one(context, receiver)
    return answer if answer is not CustomCuda.NEVER and context.project.has_own_cuda() else CustomCuda.NEVER


def _if_any_class_has_one(context: Context, receiver: ast.expr) -> CustomCuda:
    """Return the same, if any class of the project defines such a method."""
    facts, project = context.facts, context.project
    if isinstance(receiver, ast.Call):
        created = _created_by(facts, project, receiver)
        if created is not None:
            return created
        return CustomCuda.MAYBE if _may_create_anything(facts, project, receiver) else CustomCuda.NEVER
    if isinstance(receiver, ast.Name) and receiver.id == "self":
        parents = (parent for _, parent in facts.tree.ancestors(receiver))
        owner = next((parent for parent in parents if isinstance(parent, ast.ClassDef)), None)
        inherits = owner is not None and project.is_cuda_class(owner.name)
        return CustomCuda.ALWAYS if inherits else CustomCuda.NEVER
    answer = facts.once(_by_bindings, facts.bindings(receiver), project)
    if answer is not None:
        return answer
    held = project.holds_cuda_object(last_name(receiver))
    return CustomCuda.MAYBE if held or _may_be_module(context, receiver) else CustomCuda.NEVER


def _by_bindings(facts: Facts, bindings: Sequence[Binding], project: Project) -> CustomCuda | None:
    """Return the answer for a name by the values that it is bound to, None where they don't show it."""
    # `x = x.cuda()` doesn't show the class of x.
    values = [binding.value for binding in bindings if not _moves(binding.value)]
    answers = {_created_by(facts, project, v) if isinstance(v, ast.Call) else None for v in values}
    if len(answers) == 1 and None not in answers:
        return answers.pop()
    if any(isinstance(value, ast.Call) and _may_create_anything(facts, project, value) for value in values):
        return CustomCuda.MAYBE
    return CustomCuda.MAYBE if CustomCuda.ALWAYS in answers else None


def _moves(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in ("cuda", "to")


def _created_by(facts: Facts, project: Project, call: ast.Call) -> CustomCuda | None:
    """Return the answer for the object that a call creates, None where its class is not known."""
    names = (dotted(call.func) or "").split(".")
    if any(map(project.is_cuda_class, names)):
        return CustomCuda.ALWAYS  # also by a method of the class, such as `Model.load(path)`
    if names[-1][:1].isupper() or (facts.resolve(call.func) or "").startswith("torch."):
        return CustomCuda.NEVER
    return None


def _may_create_anything(facts: Facts, project: Project, call: ast.Call) -> bool:
    """Return whether a call may create an object of any class: no class, method, or function of torch."""
    if _created_by(facts, project, call) is not None:
        return False
    name = facts.resolve(call.func)
    return isinstance(call.func, ast.Name) if name is None else not name.startswith(("torch.", "numpy."))


def _may_be_module(context: Context, receiver: ast.expr) -> bool:
    """Return whether an object may be a `torch.nn.Module`: by its name, or since it is moved in place."""
    if dotted(receiver) is None:
        return False
    parents = context.facts.tree.parents
    call = parents.get(parents[receiver])
    moved_in_place = call is not None and isinstance(parents.get(call), ast.Expr)
    return moved_in_place or bool(_MODULE_NAME.search(last_name(receiver)))
