"""Fix arguments of calls and items of dictionaries: they get a device of the module by its name."""

from __future__ import annotations

import ast
from itertools import takewhile

from devicefix.devices.arguments import name_fix
from devicefix.devices.context import Context
from devicefix.facts.values import cuda_literal, last_name
from devicefix.model import Fix
from devicefix.rules.base import Example
from devicefix.rules.device_value.defaults import NAMES, OPTIONS, Defaults

_WITH_DEFAULT = ("get", "pop", "setdefault", "getattr", "setattr")


def argument_fix(context: Context, value: ast.expr, defaults: Defaults) -> Fix | None:
    """Return the fix of an argument or an item that gets a device of the module by its name, or None.

    Defaults stay where they are read, those of options and of fields as well. An argument shares the
    constant of such defaults.
    """
    tree = context.facts.tree
    parent = tree.parents.get(value)
    if isinstance(parent, ast.keyword) and parent.arg not in (None, *NAMES):
        parent = tree.parents.get(parent)
    if isinstance(parent, ast.Call):
        if last_name(parent.func) in (*_WITH_DEFAULT, *OPTIONS):
            return None
    elif not isinstance(parent, ast.Dict) or parent.values[tree.place(value)] is not value:
        return None
    if cuda_literal(value) in defaults.indices or isinstance(tree.scope(value).node, ast.ClassDef):
        return None
    parents = (parent for _, parent in tree.ancestors(value))
    around = list(takewhile(lambda node: not isinstance(node, ast.stmt), parents))
    if any(isinstance(each, ast.arguments) for each in around):
        return None
    return name_fix(context, value) if any(isinstance(each, ast.Call) for each in around) else None


INVALID = (
    Example(
        "an argument of a function of the module",
        before="""
            import torch

            def make(n, where=None):
                return torch.ones(n, device=where)


            make(1, "cuda")
            make(1, where="cuda")
        """,
        after="""
            import torch

            device = "cuda" if torch.cuda.is_available() else "cpu"

            def make(n, where=None):
                return torch.ones(n, device=where)


            make(1, device)
            make(1, where=device)
        """,
    ),
    Example(
        "an argument of a function by another name, and of a lambda that is called",
        before="""
            import torch

            def make(n, where=None):
                return torch.ones(n, device=where)


            build = make
            build(1, "cuda")
            place = (lambda each: each)("cuda:1")
            net.to(place)
        """,
        after="""
            import torch

            device = "cuda" if torch.cuda.is_available() else "cpu"

            def make(n, where=None):
                return torch.ones(n, device=where)


            build = make
            build(1, device)
            place = (lambda each: each)("cuda:1" if torch.cuda.is_available() else "cpu")
            net.to(place)
        """,
    ),
    Example(
        "an argument through two functions",
        before="""
            import torch

            def outer(where):
                return inner(where)


            def inner(place):
                return torch.ones(1).to(place)


            outer("cuda")
        """,
        after="""
            import torch

            device = "cuda" if torch.cuda.is_available() else "cpu"

            def outer(where):
                return inner(where)


            def inner(place):
                return torch.ones(1).to(place)


            outer(device)
        """,
    ),
    Example(
        "checkpoints",
        before="""
            import torch

            from safetensors.torch import load_file

            a = load_file(path, "cuda")
            b = Net.load_from_checkpoint(path, "cuda")
            c = load_state_dict(path, location="cuda")
        """,
        after="""
            import torch

            from safetensors.torch import load_file

            device = "cuda" if torch.cuda.is_available() else "cpu"

            a = load_file(path, device)
            b = Net.load_from_checkpoint(path, device)
            c = load_state_dict(path, location=device)
        """,
    ),
    Example(
        "through a lambda, and an item of a dictionary or a list",
        before="""
            import torch

            same = lambda q7: q7
            x = x.to(same({True: "cuda", False: None}[flag]))
            y = y.to((lambda q8: q8)([None, "cuda"][True]))
        """,
        after="""
            import torch

            device = "cuda" if torch.cuda.is_available() else "cpu"

            same = lambda q7: q7
            x = x.to(same({True: device, False: None}[flag]))
            y = y.to((lambda q8: q8)([None, "cuda" if torch.cuda.is_available() else "cpu"][True]))
        """,
    ),
)
