"""Two statements in place of one: a value, and below it the call of a method that needs CUDA."""

from __future__ import annotations

import ast
from dataclasses import replace

from devicefix.devices.context import Context
from devicefix.facts import dotted
from devicefix.facts.tree import TRIES
from devicefix.model import Fix
from devicefix.rewrite.blocks import guarded_below
from devicefix.rewrite.lines import alone
from devicefix.rewrite.operations import KeepReceiver


def called_below(context: Context, node: ast.Call) -> Fix | None:
    """Return the fix that makes `x = f().cuda()` two statements, the second one under a guard, or None.

    In a `try` statement, where the call may fail, the variable keeps its value until it has succeeded.

    Args:
        context: the context of the module.
        node: the call of a method that needs CUDA, and returns another object of the same kind.
    """
    source, tree = context.source, context.facts.tree
    statement = tree.parents.get(node)
    match statement, node.func:
        case ast.Assign(targets=[ast.Name(id=name)]), ast.Attribute(value=receiver, attr=method):
            if dotted(receiver) is not None or not alone(source, statement):
                return None
        case _:
            return None
    if name in tree.declared_elsewhere or any(tree.around(statement, *TRIES)):
        return None
    values: tuple[ast.expr | ast.keyword, ...] = (*node.args, *node.keywords)
    arguments = ", ".join(source.text[slice(*source.span(each))] for each in values)
    names = [each for value in values for each in ast.walk(value) if isinstance(each, ast.Name)]
    has_comment = "#" in source.text[source.span(node.func)[1] : source.span(node)[1]]
    if has_comment or "\n" in arguments or "\r" in arguments or any(each.id == name for each in names):
        return None
    if not context.devices.are_bound(names):
        return None
    question = context.devices.available(node)
    header, code = f"if {question.text}:", f"{name} = {name}.{method}({arguments})"
    below = guarded_below(context.facts, statement, header, [code], "If")
    shortened = context.edit(node, KeepReceiver(), question)
    return replace(shortened, edits=(*shortened.edits, below))
