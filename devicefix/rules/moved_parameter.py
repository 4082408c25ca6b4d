from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain

from devicefix.facts.copies.buffers import changed_buffer, is_only_counted
from devicefix.facts.copies.moves import goes_to_cpu, is_parameter, moves, values_of
from devicefix.facts.copies.views import views
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.values import is_constant, last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule

# What differs between a leaf and a copy of it: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_leaf.html
_OF_LEAVES = {"is_leaf", "requires_grad", "requires_grad_", "grad", "grad_fn", "retain_grad", "detach_"}
_DIFFERENT = {"is_leaf", "grad", "grad_fn"}  # these always differ; others may
_PARAMETER = ("torch.nn.Parameter", "torch.nn.parameter.Parameter")


class MovedParameter(Rule):
    """
    ## What it does
    Finds `nn.Parameter(x).cuda()`, `nn.Parameter(x).to(device)`, and parameters that are registered as buffers and
    changed in place. Also finds moves of leaf tensors that require a gradient, if the program uses the moved tensor's
    `is_leaf`, `grad` or a related attribute.

    ## Why it matters
    On a GPU, the move makes a copy that is not a parameter. The copy is not in `state_dict()` or `parameters()`, and
    has no `.grad`. On a CPU, the move returns the parameter itself, which is trained and saved. While gradients are
    recorded, changing the parameter in place raises an error.

    ## Example
    ```python
    self.scale = nn.Parameter(torch.zeros(1)).cuda()
    ```

    ## Use instead
    ```python
    self.scale = nn.Parameter(torch.zeros(1, device=device))
    ```
    With this change, the parameter is trained on every device. If you don't want to train it, use a plain tensor or
    `register_buffer`.

    ## Fix safety
    For a parameter, there is no fix, because devicefix can't tell whether the program should also train and save the
    parameter with CUDA.

    For a buffer, the fix registers a plain tensor. This is usually safe, but unsafe if a gradient may
    flow to the buffer.
    """

    code = "DF804"
    name = "moved-parameter"
    summary = "A moved parameter or leaf tensor is a non-leaf copy on a GPU"
    words = (b"cuda",)
    common_words = (b".to", b"register_buffer")
    INVALID = (
        Example(
            "parameters of a module",
            before="""
                import torch
                from torch import nn

                device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


                class Attention(nn.Module):
                    def __init__(self):
                        self.gamma = nn.Parameter(torch.zeros(1)).cuda()
                        self.beta = nn.Parameter(a + b, requires_grad=True).to(device)
            """,
            after="""
                import torch
                from torch import nn

                device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


                class Attention(nn.Module):
                    def __init__(self):
                        self.gamma = nn.Parameter(torch.zeros(1)).to(device)
                        self.beta = nn.Parameter(a + b, requires_grad=True).to(device)
            """,
        ),
        Example(
            "a device of any name",
            before="""
                import torch
                from torch import nn


                class Attention(nn.Module):  # cuda
                    def __init__(self, q7):
                        self.gamma = nn.Parameter(torch.zeros(1)).to(q7)
            """,
        ),
        Example(
            "a buffer that is changed in place",
            before="""
                import torch
                from torch import nn


                class Codebook(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.register_buffer('seen', nn.Parameter(torch.zeros(64)), persistent=False)

                    def forward(self, found):
                        n = len(found)
                        self.seen[:-n] = self.seen[n:].clone()
                        self.seen[-n:] = found
                        return len(torch.unique(self.seen))
            """,
            after="""
                import torch
                from torch import nn


                class Codebook(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.register_buffer('seen', torch.zeros(64), persistent=False)

                    def forward(self, found):
                        n = len(found)
                        self.seen[:-n] = self.seen[n:].clone()
                        self.seen[-n:] = found
                        return len(torch.unique(self.seen))
            """,
        ),
        Example(
            "a buffer that a loss may be computed with",
            before="""
                import torch
                from torch import nn


                class Centers(nn.Module):
                    def __init__(self, a, b):
                        super().__init__()
                        self.register_buffer('mean', nn.Parameter((a + b), requires_grad=True))

                    def forward(self, x):
                        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
                        return x - self.mean
            """,
            after="""
                import torch
                from torch import nn


                class Centers(nn.Module):
                    def __init__(self, a, b):
                        super().__init__()
                        self.register_buffer('mean', a + b)

                    def forward(self, x):
                        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
                        return x - self.mean
            """,
            unsafe=True,
        ),
        Example(
            "a tensor that requires a gradient, and is changed after the move",
            before="""
                import torch

                device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
                w = torch.zeros(2, requires_grad=True)
                x = w.to(device)
                x += 1
                y = torch.zeros(2).requires_grad_().to(device)
                y.requires_grad = False
            """,
        ),
    )
    VALID = (
        Example(
            "a buffer that is not changed in place",
            """
                import torch
                from torch import nn


                class Caption(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.register_buffer('null', nn.Parameter(torch.randn(4)))

                    def forward(self, x, drop):
                        return torch.where(drop, self.null, x)
            """,
        ),
        Example(
            "a buffer that is changed where no gradients are recorded",
            """
                import torch
                from torch import nn


                class Queue(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.register_buffer('queue', nn.Parameter(torch.zeros(64)))
                        self.register_buffer('at', nn.Parameter(torch.zeros(1), requires_grad=False))

                    @torch.no_grad()
                    def enqueue(self, keys):
                        self.queue[:len(keys)] = keys

                    def step(self, n):
                        with torch.no_grad():
                            self.queue += n
                        self.queue.data[0] = n
                        self.at[0] += n
            """,
        ),
        Example(
            "moved before it becomes a parameter",
            """
                import torch
                from torch import nn


                class Net(nn.Module):  # cuda
                    def __init__(self, device):
                        self.w = nn.Parameter(torch.zeros(1).to(device))
            """,
        ),
        Example(
            "to a dtype",
            """
                from torch import nn


                def half(x):  # cuda
                    return nn.Parameter(x).to(x.dtype)
            """,
        ),
        Example(
            "a leaf whose gradient nobody reads",
            """
                import torch


                def start(device):  # cuda
                    hidden = torch.zeros(1, 1, 9, requires_grad=True).to(device)
                    return run(hidden)
            """,
        ),
        Example(
            "made on the device already",
            """
                import torch


                def start(device):  # cuda
                    w = torch.zeros(9, requires_grad=True, device='cuda').to(device)
                    w.sum().backward()
                    return w.grad
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if last_name(node.func) == "register_buffer":
            yield from self._buffer(node)
            return
        made = node.func.value if isinstance(node.func, ast.Attribute) else None
        if not self._moves(node) or self.facts.is_guarded(node):
            return
        yield from self._leaf(node)
        moved = self.context.source.code(node.func).rpartition(".")[2]
        if isinstance(made, ast.Call) and not self._there(made) and self.facts.call(made, *_PARAMETER):
            message = (
                f"on a GPU, `Parameter(...).{moved}(...)` is a plain tensor, not a parameter;"
                " move the tensor before it becomes a parameter, or use a plain tensor"
            )
            yield self.finding(node, message)

    def _leaf(self, node: ast.Call) -> Iterator[Finding]:
        """Report a tensor that requires a gradient, and that a move copies only to a GPU."""
        assert isinstance(node.func, ast.Attribute)
        tensor = node.func.value
        values = filter(None, (tensor, *values_of(self.facts, tensor)))
        viewed = chain.from_iterable(views(self.facts, each) for each in values)
        made = next((each for each in viewed if is_parameter(self.facts, each)), None)
        if made is None or self._there(made):
            return
        for use in self.context.forwards.of(node).uses:
            parent = self.facts.tree.parents.get(use)
            if isinstance(parent, ast.Attribute) and parent.attr in _OF_LEAVES:
                advice, unless = "add `.clone()`", "because with CUDA, the fix would make a second copy"
                if fails := _fails_for_copy(self.facts.tree.parents.get(parent), parent):
                    advice, unless = "move the tensor before it requires a gradient", ""
                depends = "depends" if fails or parent.attr in _DIFFERENT else "may depend"
                message = (
                    f"on a CPU, `{self.context.source.code(node)}` returns the leaf tensor itself instead of a copy, and line"
                    f" {use.lineno} {depends} on the difference; {advice}"
                )
                yield self.finding(node, message, unless=unless)
                return

    def _buffer(self, node: ast.Call) -> Iterator[Finding]:
        """Report a parameter that is registered as a buffer and changed in place."""
        name = argument_of(node, "name", 0)
        made = argument_of(node, "tensor", 1)
        if not (
            isinstance(name, ast.Constant) and isinstance(name.value, str) and isinstance(made, ast.Call)
        ):
            return
        if not self.facts.call(made, *_PARAMETER) or not is_parameter(self.facts, made):
            return
        changed = changed_buffer(self.facts, name.value)
        if changed is None:
            return
        message = (
            f"the buffer `{name.value}` is still a parameter on a CPU, where changing it in place on line"
            f" {changed.lineno} raises an error; register a plain tensor"
        )
        yield self.finding(made, message, self._unwrapped(made, name.value))

    def _unwrapped(self, made: ast.Call, name: str) -> Fix | None:
        """Return the fix that registers the tensor of a parameter, or None."""
        tensor = argument_of(made, "data", 0)
        if tensor is None or isinstance(tensor, ast.Starred):
            return None
        source = self.context.source
        start, end = source.span(made)
        inner = source.span(tensor)
        edits = (Edit(start, inner[0], ""), Edit(inner[1], end, ""))
        if any("#" in source.text[edit.start : edit.end] for edit in edits):
            return None
        read = self.context.project.is_read_elsewhere(self.devices.path, f"self.{name}")
        if read or not is_only_counted(self.facts, name):
            return Fix(edits, "the fix loses any gradient that flows to the buffer")
        return Fix(edits)

    def _there(self, made: ast.expr) -> bool:
        """Return whether the tensor is on the GPU before it is moved, so that the move does nothing."""
        parts = list(ast.walk(made))
        moves = any(self._moves(part) for part in parts if isinstance(part, ast.Call))
        named = any(part.arg == "device" for part in parts if isinstance(part, ast.keyword))
        return moves or named or "cuda" in self.context.source.code(made)

    def _moves(self, node: ast.Call) -> bool:
        is_method = isinstance(node.func, ast.Attribute)
        return is_method and moves(self.facts, node) and not goes_to_cpu(self.facts, node)


def _fails_for_copy(outer: ast.AST | None, attribute: ast.Attribute) -> bool:
    """Return whether code sets whether a tensor requires a gradient: torch allows that only for a leaf."""
    if attribute.attr == "requires_grad":
        return isinstance(attribute.ctx, ast.Store)
    if attribute.attr != "requires_grad_" or not isinstance(outer, ast.Call):
        return False
    on = argument_of(outer, "requires_grad", 0)
    return on is not None and not is_constant(on, True)
