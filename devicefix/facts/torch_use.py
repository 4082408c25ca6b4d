"""Decide whether a module uses torch for more than what fixes bring."""

from __future__ import annotations

import ast

from devicefix.facts.module import Facts
from devicefix.facts.texts import text_of

# What fixes bring of torch.
_OF_FIXES = (
    "device", "cuda.is_available", "accelerator.is_available", "accelerator.current_accelerator",
    "distributed.get_default_backend_for_device", "Tensor.cuda", "nn.Module.cuda",
)  # fmt: skip


def uses_torch(facts: Facts) -> bool:
    """Return whether a module uses torch for more than fixes bring and remove: a rewrite keeps the answer."""
    names = {"torch"}
    for node in facts.tree.imports:
        if isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] == "torch":
                return True
            continue
        for alias in node.names:
            if alias.name.startswith("torch."):
                return True
            if alias.name == "torch":
                names.add(alias.asname or "torch")
    reads = (read for name in names for read in facts.tree.reads(name))
    return any(_path_after(facts, read) not in _OF_FIXES or _makes_device(facts, read) for read in reads)


def _path_after(facts: Facts, node: ast.expr) -> str:
    """Return the attributes that are read of a name: `cuda.is_available`."""
    names = []
    parent = facts.tree.parents.get(node)
    while isinstance(parent, ast.Attribute):
        names.append(parent.attr)
        parent = facts.tree.parents.get(parent)
    return ".".join(names)


def _makes_device(facts: Facts, torch: ast.expr) -> bool:
    """Return whether `torch.device` makes a device of a value of the program, as it does in no fix."""
    function = facts.tree.parents.get(torch)
    match facts.tree.parents.get(function) if isinstance(function, ast.Attribute) else None:
        case ast.Call(func=called, args=[device], keywords=[]) if called is function:
            first = device.body if isinstance(device, ast.IfExp) else device  # with its fix it is a choice
            if _is_type(first):  # of the accelerator
                return False
            return text_of(first) is None and not isinstance(first, ast.Constant)
    return False


def _is_type(node: ast.expr) -> bool:
    """Return whether the name of a device begins with another type: `….type + ":1"`, `f"{….type}:1"`."""
    match node:
        case ast.BinOp(left=first) | ast.JoinedStr(values=[ast.FormattedValue(value=first), *_]):
            return _is_type(first)
        case ast.Attribute(attr="type"):
            return True
    return False
