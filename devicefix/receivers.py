"""Whose `cuda` method a call reaches: torch's, or one that the project has written itself."""

from __future__ import annotations

import ast
import re
from enum import Enum

from devicefix.facts import dotted
from devicefix.facts.values import last_name
from devicefix.rule import Context


class Own(Enum):
    """Whether `x.cuda()` reaches a method that the project has written itself."""

    NEVER = 0
    MAYBE = 1
    ALWAYS = 2


def own_cuda(context: Context, receiver: ast.expr) -> Own:
    """Whether an object is of a class that defines or inherits a `cuda` method of the project's own."""
    classes = context.project.cuda_classes
    if not classes:
        return Own.NEVER
    if isinstance(receiver, ast.Call):
        return Own.ALWAYS if last_name(receiver.func) in classes else Own.NEVER
    if isinstance(receiver, ast.Name) and receiver.id == "self":
        owner = next(
            (each for _, each in context.facts.tree.ancestors(receiver) if isinstance(each, ast.ClassDef)),
            None,
        )
        return Own.ALWAYS if owner is not None and owner.name in classes else Own.NEVER
    values = [binding.value for binding in context.facts.bindings(receiver)]
    answers = [own_cuda(context, value) for value in values if isinstance(value, ast.Call)]
    # `x = x.cuda()` says nothing of what x is.
    made = [
        value
        for value in values
        if not (isinstance(value, ast.Call) and last_name(value.func) in ("cuda", "to"))
    ]
    if made and len(answers) >= len(made) and Own.ALWAYS in answers:
        unsure = answers.count(Own.ALWAYS) < len(made)
        return Own.MAYBE if unsure else Own.ALWAYS
    if Own.ALWAYS in answers or last_name(receiver) in context.project.cuda_names:
        return Own.MAYBE
    return Own.MAYBE if not made and _module(context, receiver) else Own.NEVER


def _module(context: Context, receiver: ast.expr) -> bool:
    """Whether an object of unknown class is a module: by its name, or as it is moved in place."""
    if dotted(receiver) is None:
        return False
    call = context.facts.tree.parents.get(context.facts.tree.parents[receiver])
    moved_in_place = isinstance(context.facts.tree.parents.get(call), ast.Expr) if call is not None else False
    return moved_in_place or bool(re.search(r"model|net(work)?\Z", last_name(receiver), re.I))
