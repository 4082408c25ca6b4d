from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from devicefix.devices.arguments import device_argument, target_device, why_no_device
from devicefix.devices.choose import DeviceExpr
from devicefix.devices.tensors import is_variable
from devicefix.facts.kinds import NUMBERS
from devicefix.model import Finding
from devicefix.rewrite.calls import first_argument, receiver_of, with_first_argument, with_keyword
from devicefix.rules.base import Example, Rule

# These give the same bits on every device. torch.linspace does not: it rounds differently on a GPU.
_EXACT = ("zeros", "ones", "empty", "full", "eye")
# With these the moved tensor is a different one: not a leaf of the graph, or not in pinned memory.
_OTHERWISE = {"device", "out", "pin_memory", "requires_grad", None}


class CreatedThenMoved(Rule):
    """
    ## What it does
    Finds tensors that are created on the CPU and immediately moved, as in `torch.zeros(n).cuda()` and
    `torch.zeros(n).to(device)`. This rule is off by default.

    ## Why it matters
    The tensor is allocated twice, and both devices have to wait while it is copied from the CPU to the GPU.

    ## Example
    ```python
    hidden = torch.zeros(2, size).cuda()
    steps = torch.arange(n).to(device)
    ```

    ## Use instead
    ```python
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    hidden = torch.zeros(2, size, device=device)
    steps = torch.arange(n, device=device)
    ```

    ## Fix safety
    The fix is safe: it changes only calls whose results are bit-identical on every device (`zeros`, `ones`, `empty`,
    `full`, `eye`, `arange` with integers, and `tensor` with a literal).

    The rule ignores random tensors, because another device's generator draws different numbers. It also ignores
    `linspace`, and `arange` with fractions, because they round differently on a GPU. Finally, it ignores tensors with
    `requires_grad=True`: such a tensor is a leaf of the graph if it is created on the device, but not if it is moved
    there.
    """

    code = "DF106"
    name = "created-then-moved"
    summary = "A tensor is created on the CPU only to be moved"
    default = False
    words = (b"cuda",)
    common_words = (b".to",)
    before = ("DF101", "DF102")
    INVALID = (
        Example(
            "zeros to the current device",
            before="""
                import torch

                x = torch.zeros(n).cuda()
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                x = torch.zeros(n, device=device)
            """,
        ),
        Example(
            "full to a numbered device, with a dtype and non_blocking",
            before="""
                import torch

                x = torch.full((2, n), 0.5, dtype=torch.half).cuda(1, non_blocking=True)
            """,
            after="""
                import torch

                device1 = torch.device("cuda:1" if torch.cuda.is_available() else "cpu")

                x = torch.full((2, n), 0.5, dtype=torch.half, device=device1)
            """,
        ),
        Example(
            "eye and arange to a device parameter",
            before="""
                import torch


                def run(device: torch.device, n):  # CPU or cuda
                    return torch.eye(n).to(device), [torch.arange(1, n).to(device=device) for _ in range(2)]
            """,
            after="""
                import torch


                def run(device: torch.device, n):  # CPU or cuda
                    return torch.eye(n, device=device), [torch.arange(1, n, device=device) for _ in range(2)]
            """,
        ),
        Example(
            "the tensor of a literal, in brackets, with a call behind it",
            before="""
                import torch

                x = (torch.tensor([1.0, -2])
                     .to("cuda").half())
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                x = (torch.tensor([1.0, -2], device=device).half())
            """,
        ),
        Example(
            "arguments over several lines, to the device of a rank",
            before="""
                import torch

                x = f(torch.ones(
                    2,
                    3,
                ).to(f"cuda:{rank}"))
            """,
            after="""
                import torch

                x = f(torch.ones(
                    2,
                    3,
                    device=f"cuda:{rank}" if torch.cuda.is_available() else "cpu",
                ))
            """,
        ),
        Example(
            "inside a Variable, which its own rule takes away",
            before="""
                import torch
                from torch.autograd import Variable

                h = Variable(torch.zeros(2)).cuda().half()
            """,
            after="""
                import torch
                from torch.autograd import Variable

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                h = torch.zeros(2, device=device).half()
            """,
        ),
    )
    VALID = (
        Example(
            "random numbers",
            """
                import torch

                x = torch.randn(n).cuda()
                y = torch.rand(2).to(device)
                z = torch.randperm(n).cuda()
            """,
        ),
        Example(
            "numbers that round differently on a GPU",
            """
                import torch

                x = torch.linspace(0, 1, n).cuda()
                y = torch.arange(0, 1, 0.1).cuda()
            """,
        ),
        Example(
            "something is done to the tensor before the move",
            """
                import torch

                x = torch.zeros(n).half().cuda()
                y = torch.empty(n).normal_().cuda()
            """,
        ),
        Example(
            "a leaf of the graph, and pinned memory",
            """
                import torch

                w = torch.zeros(n, requires_grad=True).cuda()
                p = torch.zeros(n, pin_memory=True).cuda()
            """,
        ),
        Example(
            "like another tensor, and the tensor of an array",
            """
                import torch

                x = torch.zeros_like(y).cuda()
                z = torch.tensor(array).cuda()
            """,
        ),
        Example(
            "to a dtype, the CPU, or a target that is not known",
            """
                import torch

                x = torch.zeros(n).to(torch.half)
                y = torch.zeros(n).to("cpu")
                z = torch.zeros(n).to(other)
            """,
        ),
        Example(
            "a choice by availability",
            """
                import torch

                x = torch.zeros(n).cuda() if torch.cuda.is_available() else torch.zeros(n)
            """,
        ),
        Example(
            "a number that may be None",
            """
                import torch

                x = torch.zeros(n).cuda(gpu)
            """,
        ),
        Example(
            "a comment before the move",
            """
                import torch

                x = (torch.zeros(n)  # on a GPU
                     .cuda())
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if isinstance(node.func, ast.Attribute) and self.facts.tree.f_string(node) is None:
            made = self._made(node.func.value)
            if made is not None and not self._commented(node, made):
                yield from self._moved(node)

    def _moved(self, node: ast.Call) -> Iterator[Finding]:
        assert isinstance(node.func, ast.Attribute)
        target = device_argument(node)
        if len(node.args) > 2 or any(
            keyword.arg not in ("device", "non_blocking") for keyword in node.keywords
        ):
            return
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            return
        use, why = None, ""
        if node.func.attr == "cuda" and not self.facts.is_guarded(node):
            use = target_device(self.context, node, target)
            if use is None:
                return
            self.context.mark_handled(node)
        else:
            known = why_no_device(self.facts, target)
            if node.func.attr != "to" or len(node.args) > 1 or known is None:
                return
            why = known
        message = "creates a tensor on the CPU and moves it; create it on the device with `device=`"
        fix = self.context.edit(node, _made_there(use.text if use else None), use or DeviceExpr(""), why)
        yield self.finding(node, message, fix)

    def _made(self, node: ast.expr) -> ast.Call | None:
        """Return the call that creates a tensor if the device does not change its bits, or None."""
        if not isinstance(node, ast.Call) or "cuda" in self.context.source.code(node):
            return None
        if is_variable(self.facts, node) and len(node.args) == 1 and not node.keywords:
            return self._made(node.args[0]) if not is_variable(self.facts, node.args[0]) else None
        name = (self.facts.resolve(node.func) or "").removeprefix("torch.")
        if any(keyword.arg in _OTHERWISE for keyword in node.keywords) or not node.args:
            return None
        exact = name in _EXACT or (
            # The values are start + i * step, so the end does not matter.
            name == "arange"
            and (len(node.args) == 1 or all(map(self._whole, (node.args[0], *node.args[2:3]))))
        )
        return node if exact or (name == "tensor" and _literal(node.args[0])) else None

    def _whole(self, node: ast.expr) -> bool:
        """Return whether an expression is certainly an integer."""
        match node:
            case ast.Constant(value=value):
                return type(value) is int
            case ast.UnaryOp(operand=operand):
                return self._whole(operand)
            case ast.BinOp(left=left, right=right, op=op):
                return not isinstance(op, ast.Div) and self._whole(left) and self._whole(right)
            case (
                ast.Call(func=ast.Attribute(attr="size" | "numel" | "dim"))
                | ast.Call(func=ast.Name(id="len" | "int"))
            ):
                return True
            case ast.Subscript(value=ast.Attribute(attr="shape")):
                return True
        return self.facts.kinds.of(node).are(NUMBERS)

    def _commented(self, node: ast.Call, made: ast.Call) -> bool:
        """Return whether the fix would remove a comment."""
        _, end = self.context.source.span(made)
        return "#" in self.context.source.text[end : self.context.source.span(node)[1]]


def _literal(node: ast.expr) -> bool:
    """Return whether an expression is a number or a list."""
    if isinstance(node, ast.UnaryOp):
        return _literal(node.operand)
    return isinstance(node, (ast.List, ast.Tuple)) or (
        isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, complex))
    )


def _made_there(device: str | None) -> Callable[[str], str]:
    """Return a function that makes `torch.zeros(n, device=there)` of `torch.zeros(n).to(there)`.

    Args:
        device: what to write instead of `there`, or None to keep it.
    """

    def new(text: str) -> str:
        made = receiver_of(text)
        there = device or first_argument(text)
        name = made.partition("(")[0].strip()
        if name.rpartition(".")[2].strip() == "Variable":
            return with_first_argument(made, with_keyword("device", there)(first_argument(made)))
        return with_keyword("device", there)(made)

    return new
