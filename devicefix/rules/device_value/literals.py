"""Find the expressions that name a CUDA device, and leave those that another rule checks to it."""

from __future__ import annotations

import ast
from itertools import islice

from devicefix.facts import Facts
from devicefix.facts.values import cuda_string, device_name, last_name
from devicefix.rules.base import Example

_OF_OTHER_RULES = ("torch.load", "torch.jit.load", "torch.Generator", "torch.set_default_device")
_AROUND = 6  # how many expressions may put a string together around its first piece


def whole_name(facts: Facts, node: ast.expr) -> ast.expr | None:
    """Return the whole string that a piece such as `"cuda:"` begins, None if that is no CUDA device."""
    whole = node if cuda_string(node) else None
    for _, parent in islice(facts.tree.ancestors(node), _AROUND):
        if not isinstance(parent, ast.expr):
            break
        whole = parent if cuda_string(parent) else whole
    return whole


def is_of_another_rule(facts: Facts, value: ast.expr) -> bool:
    """Return whether a value is a direct argument of a call that another rule checks."""
    parents = facts.tree.parents
    parent = parents.get(value)
    call = parents.get(parent) if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call):
        return False
    function = call.func.body if isinstance(call.func, ast.IfExp) else call.func  # a type that is fixed
    name = facts.resolve(function) or ""
    if name == "torch.device" or name.startswith("torch.cuda."):
        return True
    if not cuda_string(value):
        return False
    if isinstance(parent, ast.keyword):
        return parent.arg == "map_location" or device_name(parent.arg or "")
    moves = last_name(call.func) in ("to", "to_empty", "cuda") and value is call.args[0]
    return moves or name in _OF_OTHER_RULES


INVALID = (
    Example(
        "strings that are put together",
        before="""
            import torch

            a = ["cuda:%d" % i for i in range(2)]
            b = tuple("cuda:" + str(i) for i in range(2))
            c = {i: "cuda:{}".format(i) for i in range(2)}
            d = list(map(lambda i: f"cuda:{i}", range(2)))
            e = "".join(["cuda:", str(i)])
            f = "{}:{}".format("cuda", i)
            g = "%s:%d" % ("cuda", i)
            for place in (a[0], b[0], c[0], d[0], e, f, g):
                net.to(place)
        """,
        after="""
            import torch

            a = ["cuda:%d" % i if torch.cuda.is_available() else "cpu" for i in range(2)]
            b = tuple("cuda:" + str(i) if torch.cuda.is_available() else "cpu" for i in range(2))
            c = {i: "cuda:{}".format(i) if torch.cuda.is_available() else "cpu" for i in range(2)}
            d = list(map(lambda i: f"cuda:{i}" if torch.cuda.is_available() else "cpu", range(2)))
            e = "".join(["cuda:", str(i)]) if torch.cuda.is_available() else "cpu"
            f = "{}:{}".format("cuda", i) if torch.cuda.is_available() else "cpu"
            g = "%s:%d" % ("cuda", i) if torch.cuda.is_available() else "cpu"
            for place in (a[0], b[0], c[0], d[0], e, f, g):
                net.to(place)
        """,
    ),
    Example(
        "a list of devices",
        before="""
            import torch

            devices = ["cuda:0", "cuda:1"]
            places = [f"cuda:{i}" for i in range(2)]
            nets = [net.to(device) for net, device in zip(nets, devices)]
            net.to(places[0])
        """,
        after="""
            import torch

            devices = ["cuda:0" if torch.cuda.is_available() else "cpu", "cuda:1" if torch.cuda.is_available() else "cpu"]
            places = [f"cuda:{i}" if torch.cuda.is_available() else "cpu" for i in range(2)]
            nets = [net.to(device) for net, device in zip(nets, devices)]
            net.to(places[0])
        """,
    ),
    Example(
        "the method of a class, and unpacked arguments",
        before="""
            import torch

            torch.Tensor.to(x, "cuda")
            x.to(*["cuda"])
            x.to(**{"device": "cuda"})
        """,
        after="""
            import torch

            device = "cuda" if torch.cuda.is_available() else "cpu"

            torch.Tensor.to(x, device)
            x.to(*["cuda" if torch.cuda.is_available() else "cpu"])
            x.to(**{"device": device})
        """,
    ),
    Example(
        "a function that is called with its first arguments",
        before="""
            import torch

            from functools import partial
            from operator import methodcaller

            make = partial(torch.device, "cuda")
            x = torch.ones(1, device=make())
            y = methodcaller("to", "cuda")(x)
        """,
        after="""
            import torch

            from functools import partial
            from operator import methodcaller

            device = "cuda" if torch.cuda.is_available() else "cpu"

            make = partial(torch.device, device)
            x = torch.ones(1, device=make())
            y = methodcaller("to", device)(x)
        """,
    ),
)
VALID = (
    Example(
        "what disables itself without CUDA, and the name of a method",
        """
            from contextlib import nullcontext

            import torch

            scope = torch.autocast if mixed else nullcontext
            with scope("cuda"):
                move = getattr(module, "cuda")
        """,
    ),
    Example(
        "functions of autocast, which switches itself off",
        """
            import functools
            import torch

            @torch.amp.custom_bwd(device_type="cuda")
            def backward(ctx, grad):
                return grad

            scope = functools.partial(torch.autocast, device_type="cuda", enabled=False)
        """,
    ),
    Example(
        "a part of a path",
        """
            import os
            from pathlib import Path

            import torch

            net = build(torch.randn(3), str(Path(__file__).parent / "cuda" / "kernel.cu"))

            def folders(root):
                name = "cuda"
                return os.path.join(root, name), Path(root, name), root.joinpath(name)
        """,
    ),
)
