"""The `cuda` method that a call reaches: torch's, or one that the project defines."""

from __future__ import annotations

import ast
from enum import Enum

from devicefix.devices.context import Context
from devicefix.facts.kinds import Kind

_KNOWN = {Kind.TENSOR, Kind.MODULE, Kind.OBJECT}


class CustomCuda(Enum):
    """Whether `x.cuda()` reaches a method that the project defines."""

    NEVER = 0
    MAYBE = 1
    ALWAYS = 2


def custom_cuda(context: Context, receiver: ast.expr) -> CustomCuda:
    """Return whether the class of a receiver defines or inherits a `cuda` method of the project.

    Where no class of the project defines `cuda` without a `to`, which can replace it, that does not matter.
    Else only what is shown to be a tensor or an instance of another class does not have such a method.
    """
    project = context.project
    if not project.has_own_cuda():
        return CustomCuda.NEVER
    if isinstance(receiver, ast.Name) and receiver.id == "self":
        return _of_self(context, receiver)
    kinds = context.facts.kinds.of(receiver)
    classes = {name.rpartition(".")[2] for name in kinds.classes}
    own = set(filter(project.is_cuda_class, classes))
    if not own:
        another = kinds.are(_KNOWN) and not any(map(project.has_cuda_subclass, classes))
        return CustomCuda.NEVER if another else CustomCuda.MAYBE
    certain = classes == own and kinds.are(_KNOWN - {Kind.TENSOR})
    return CustomCuda.ALWAYS if certain else CustomCuda.MAYBE


def _of_self(context: Context, receiver: ast.Name) -> CustomCuda:
    parents = (parent for _, parent in context.facts.tree.ancestors(receiver))
    owner = next((parent for parent in parents if isinstance(parent, ast.ClassDef)), None)
    if owner is None:
        return CustomCuda.MAYBE
    if context.project.is_cuda_class(owner.name):
        return CustomCuda.ALWAYS
    return CustomCuda.MAYBE if context.project.has_cuda_subclass(owner.name) else CustomCuda.NEVER
