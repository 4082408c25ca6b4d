from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.devices.expression import DeviceExpr
from devicefix.devices.methods import CustomCuda, custom_cuda, may_be_storage, shows_class
from devicefix.facts import dotted
from devicefix.facts.bound import Bound
from devicefix.facts.flow.kinds import Kind
from devicefix.facts.texts import text_of
from devicefix.facts.values import last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule

_OWN = "because the object may have its own `cuda` or `to` method"
_ARGUMENTS = "because of the call's arguments"
_ADVICE = "needs CUDA; use `.to(device)`"
_STORED = "the `cuda` method needs CUDA; use a function that calls `.to(device)`"
_METHODS = ("torch.Tensor.cuda", "torch.nn.Module.cuda", "torch.nn.modules.module.Module.cuda")
_BY_NAME = ("getattr", "methodcaller", "attrgetter")


class UncalledCuda(Rule):
    """
    ## What it does
    Finds indirect uses of the `cuda` method: `map(torch.Tensor.cuda, xs)`, `torch.Tensor.cuda(x)`,
    `getattr(x, "cuda")()`, `operator.methodcaller("cuda")` and `move = x.cuda`.

    ## Why it matters
    Without CUDA, calling the method usually raises an error.

    ## Example
    ```python
    xs = list(map(torch.Tensor.cuda, xs))
    x = getattr(x, "cuda")()
    ```

    ## Use instead
    ```python
    xs = list(map(lambda x: x.to(device), xs))
    x = x.to(device)
    ```

    ## Fix safety
    The fix is usually safe: with CUDA, the device is the same as before. Stored methods, as in `move = x.cuda` and
    `methodcaller("cuda")`, and calls with additional arguments have no fix.
    """

    code = "DF103"
    name = "uncalled-cuda"
    summary = "The `cuda` method is used indirectly, as in `map(torch.Tensor.cuda, xs)`"
    words = (b"cuda",)
    common_words = (b"getattr", b"methodcaller", b"attrgetter")
    attributes = ("cuda",)
    INVALID = (
        Example(
            "the unbound method mapped over a list",
            before="""
                import torch

                xs = list(map(torch.Tensor.cuda, xs))
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                xs = list(map(lambda x: x.to(device), xs))
            """,
        ),
        Example(
            "the unbound method called",
            before="""
                import torch

                x = torch.Tensor.cuda(y)
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                x = y.to(device)
            """,
        ),
        Example(
            "the method by getattr",
            before="""
                import torch

                x = getattr(y, "cuda")()
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                x = y.to(device)
            """,
        ),
        Example(
            "the method by methodcaller",
            before="""
                import torch
                from operator import methodcaller

                move = methodcaller("cuda")
            """,
        ),
        Example(
            "a bound method called later",
            before="""
                import torch

                move = x.cuda
                y = move()
            """,
        ),
        Example(
            "a bound method in an attribute",
            before="""
                import torch


                class Mover:
                    def __init__(self, x):
                        self.move = x.cuda

                    def run(self):
                        return self.move()
            """,
        ),
        Example(
            "a method by a name that is put together, and by an attrgetter",
            before="""
                import operator

                import torch

                x = getattr(x, "cu" + "da")()
                y = operator.attrgetter("cuda")(y)()
            """,
            after="""
                import operator

                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                x = x.to(device)
                y = operator.attrgetter("cuda")(y)()
            """,
        ),
        Example(
            "an object that may have no cuda method, but one that is called to",
            before="""
                import operator


                class Form:
                    def to(self, name):
                        return self


                try:
                    operator.methodcaller("cuda")(Form())
                    getattr(x, "cuda")()
                except AttributeError:
                    print("not moved")
            """,
        ),
        Example(
            "a method of a tensor that is passed on",
            before="""
                import torch

                x = torch.ones(2)
                later(x.cuda)
                moves = [getattr(x, "cuda")]
                move: object = x.cuda
            """,
        ),
        Example(
            "functions that call the method with more arguments, or in another process",
            before="""
                import torch

                moved = list(map(torch.Tensor.cuda, tensors, indices))
                others = pool.map(torch.Tensor.cuda, tensors)
            """,
        ),
    )
    VALID = (
        Example(
            "an attribute of options",
            """
                use = args.cuda
                if use:
                    pass
            """,
        ),
        Example(
            "a choice by availability",
            """
                import torch

                move = x.cuda if torch.cuda.is_available() else x.cpu
            """,
        ),
        Example(
            "options that are passed on",
            """
                flag = getattr(args, "cuda")
                run(args.cuda, use_cuda=args.cuda)
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        called = node.func.func if isinstance(node.func, ast.Call) else node.func
        is_method = self.facts.resolve(node.func) in _METHODS
        if not (is_method or last_name(called) in _BY_NAME) or self.facts.is_guarded(node):
            return
        if is_method:
            kept = self._may_be_own(node.func) or self._shows_torch(node.func)
            fix = None if kept else self._moved(node, node.args)
            yield self.finding(
                node, f"`{self.facts.resolve(node.func)}` {_ADVICE}", fix, _OWN if kept else _ARGUMENTS
            )
        elif isinstance(node.func, ast.Call) and _names_cuda(node.func, "getattr", 1):
            (receiver, *_) = node.func.args
            kept = custom_cuda(self.context, receiver) is not CustomCuda.NEVER
            kept = kept or may_be_storage(self.context, receiver) or shows_class(self.context, node)
            fix = None if kept or node.args else self._moved(node, [receiver])
            advice = "may need CUDA; for a tensor or module, use `.to(device)`" if kept else _ADVICE
            message = f'`getattr(..., "cuda")(...)` {advice}'
            yield self.finding(node, message, fix, _OWN if kept else _ARGUMENTS)
        elif any(_names_cuda(node, each, 0) for each in ("methodcaller", "attrgetter")) or (
            _names_cuda(node, "getattr", 1) and self._is_method(node, node.args[0])
        ):
            yield self.finding(node, _STORED)

    def visit_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        parent = self.facts.tree.parents.get(node)
        if node.attr != "cuda" or not isinstance(node.ctx, ast.Load) or self.facts.is_guarded(node):
            return
        if self.facts.tree.call_of(node) is not None:
            return
        if self.facts.resolve(node) in _METHODS:
            device = self.devices.current(node)
            fix = None
            # A method of a pool may send its function to another process, and a lambda can't be sent.
            mapped = isinstance(parent, ast.Call) and dotted(parent.func) == "map" and len(parent.args) == 2
            if mapped and not self._may_be_own(node):
                read = re.findall(r"\w+", device.text)
                name = next(name for name in ("x", "each", "tensor") if name not in read)
                moved = f"lambda {name}: {name}.to({device.text})"
                fix = self.context.replace(node, DeviceExpr(moved, device.needs))
            unless = _OWN if mapped else "because the method's uses are unknown"
            yield self.finding(node, f"`{self.facts.resolve(node)}` {_ADVICE}", fix, unless)
        elif self._is_method(node, node.value):
            yield self.finding(node, _STORED)

    def _may_be_own(self, method: ast.expr) -> bool:
        """Return whether an object that one of `_METHODS` is called on may have a `to` of its own."""
        *_, owner, _ = (self.facts.resolve(method) or "").split(".")
        return self.context.project.may_be_own(owner)

    def _shows_torch(self, method: ast.expr) -> bool:
        """Return whether torch is only known to be imported because `torch.Tensor.cuda` reads its name."""
        root = method
        while isinstance(root, ast.Attribute):
            root = root.value
        return isinstance(root, ast.Name) and not Bound(self.facts, frozenset({root})).name(root.id, root)

    def _is_method(self, node: ast.expr, owner: ast.expr) -> bool:
        """Return whether `owner.cuda` is a method that is stored, and not an option of that name."""
        match self.facts.tree.parents.get(node):
            case ast.Assign(targets=targets) if any(map(self._called_later, targets)):
                return True
            case ast.AnnAssign(target=target) | ast.NamedExpr(target=target) if self._called_later(target):
                return True
            case ast.Attribute() | ast.Expr():
                return False
        return self.facts.kinds.of(owner).shown({Kind.TENSOR, Kind.MODULE})

    def _called_later(self, target: ast.expr) -> bool:
        """Return whether a variable, or an attribute of its name, is called in the module."""
        path = dotted(target)
        if path is None or last_name(target) == "cuda":
            return False
        return any(map(self.facts.tree.call_of, self.facts.tree.reads(path)))

    def _moved(self, node: ast.Call, arguments: list[ast.expr]) -> Fix | None:
        """Return the fix that makes `x.to(device)` of a call whose only argument is x, or None."""
        if len(arguments) != 1 or isinstance(arguments[0], ast.Starred) or node.keywords:
            return None
        (argument,) = arguments
        (start, end), (first, last) = map(self.context.source.span, (node, argument))
        simple = isinstance(argument, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
        alone = simple and argument.lineno == argument.end_lineno
        before, after = ("", "") if alone else ("(", ")")
        device = self.devices.current(node)
        edits = Edit(start, first, before), Edit(last, end, f"{after}.to({device.text})")
        return Fix(edits, needs=device.needs)


def _names_cuda(node: ast.Call, function: str, position: int) -> bool:
    if last_name(node.func) != function or len(node.args) <= position:
        return False
    return text_of(node.args[position]) == "cuda"
