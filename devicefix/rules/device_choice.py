from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from devicefix.devices.arguments import gpu_number
from devicefix.facts.values import choice, cuda_device, last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rewrite.blocks import operand
from devicefix.rules.base import Example, Rule
from devicefix.rules.typed_tensor import typed_choice


class DeviceChoice(Rule):
    """
    ## What it does
    Finds code that chooses between CUDA and the CPU without checking whether CUDA is available, as in
    `torch.device("cuda" if args.cuda else "cpu")`.

    ## Why it matters
    If the condition is true, as it often is by default, the program fails without CUDA.

    ## Example
    ```python
    device = torch.device("cuda" if opt.gpus[0] >= 0 else "cpu")
    ```

    ## Use instead
    ```python
    device = torch.device("cuda" if opt.gpus[0] >= 0 and torch.cuda.is_available() else "cpu")
    ```

    ## Fix safety
    The fix is usually safe: with CUDA, the choice is the same as before.
    """

    code = "DF204"
    name = "device-choice"
    summary = "The program chooses CUDA without checking that it is available"
    words = (b"cuda",)
    common_words = (b"device", b"gpu", b"rank", b"tensor")
    INVALID = (
        Example(
            "a type that is compared, and passed on",
            before="""
                import torch


                def move(tensor, target):
                    kind = "cpu" if target == "cpu" else "cuda"
                    return tensor if tensor.device.type == kind else tensor.to(kind)
            """,
            after="""
                import torch


                def move(tensor, target):
                    kind = "cpu" if target == "cpu" or not torch.cuda.is_available() else "cuda"
                    return tensor if tensor.device.type == kind else tensor.to(kind)
            """,
        ),
        Example(
            "a choice by an option",
            before="""
                import torch

                device = torch.device("cuda" if args.cuda else "cpu")
            """,
            after="""
                import torch

                device = torch.device("cuda" if args.cuda and torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "a choice by the opposite option",
            before="""
                import torch

                device = "cpu" if args.cpu else "cuda:0"
            """,
            after="""
                import torch

                device = "cpu" if args.cpu or not torch.cuda.is_available() else "cuda:0"
            """,
        ),
        Example(
            "a choice by two options",
            before="""
                import torch

                device = "cuda" if a or b else "cpu"
            """,
            after="""
                import torch

                device = "cuda" if (a or b) and torch.cuda.is_available() else "cpu"
            """,
        ),
        Example(
            "a choice between tensor types",
            before="""
                import torch

                dtype = torch.cuda.FloatTensor if args.cuda else torch.FloatTensor
            """,
            after="""
                import torch

                dtype = torch.cuda.FloatTensor if args.cuda and torch.cuda.is_available() else torch.FloatTensor
            """,
        ),
    )
    VALID = (
        Example(
            "a flag that implies availability",
            """
                import torch

                cuda = not args.no_cuda and torch.cuda.is_available()
                d = "cuda" if cuda else "cpu"
            """,
        ),
        Example(
            "a type that is only compared with that of a tensor's device",
            """
                import torch


                def is_there(tensor, target):
                    kind = "cpu" if target == "cpu" else "cuda"
                    return tensor.device.type == kind
            """,
        ),
        Example(
            "a choice by where a tensor is",
            """
                device = 'cuda' if x.is_cuda else 'cpu'
            """,
        ),
        Example(
            "a choice by the name of a type",
            """
                kind = "cuda" if x.type().startswith("torch.cuda.") else "cpu"
            """,
        ),
        Example(
            "a choice between tensor types by availability",
            """
                import torch

                T = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
            """,
        ),
        Example(
            "a choice by the absence of CUDA",
            """
                import torch

                device = 'cpu' if not torch.cuda.is_available() else 'cuda'
            """,
        ),
    )

    def visit_IfExp(self, node: ast.IfExp) -> Iterator[Finding]:
        arms = choice(self.facts, node) or typed_choice(self.facts, node)
        if arms is None:
            return
        test, cuda, _ = arms
        why = "" if typed_choice(self.facts, node) else self._why_unsafe(cuda)
        if why is None:
            return
        self.context.mark_handled(node.body, node.orelse)
        if self.facts.guards.implies(test, cuda is node.body) or self.facts.is_guarded(node):
            return
        if not _of_type(test) and not self._is_compared(node):
            fix = self._fix(node, test, cuda)
            fix = replace(fix, why=why or fix.why)
            is_kept = self.devices.accelerated(cuda) is None
            advice = "add the check" if is_kept else "use an accelerator if one is available"
            yield self.finding(
                node, f"this selects CUDA without checking that it is available; {advice}", fix
            )

    def _is_compared(self, node: ast.IfExp) -> bool:
        """Return whether a choice is only compared with the type of a tensor's device."""
        uses = [self.facts.tree.parents.get(use) for use in self.context.forwards.of(node).uses]
        sides = [(use.left, *use.comparators) for use in uses if isinstance(use, ast.Compare)]
        return len(uses) == len(sides) > 0 and all("type" in map(last_name, each) for each in sides)

    def _why_unsafe(self, cuda: ast.expr) -> str | None:
        """Return why it is not safe to take the other arm of a choice for a CUDA device, or None if it is none."""
        if cuda_device(self.facts, cuda):
            return ""
        if self.facts.call(cuda, "torch.device") and len(cuda.args) == 1:
            cuda = cuda.args[0]
        return gpu_number(self.context, cuda)

    def _fix(self, node: ast.IfExp, test: ast.expr, cuda: ast.expr) -> Fix:
        fix = self._also_available(node, test, wanted=cuda is node.body)
        accelerated = self.devices.accelerated(cuda)
        if accelerated is None:
            return fix
        return replace(fix, edits=(*fix.edits, Edit(*self.context.source.span(cuda), accelerated[1])))

    def _also_available(self, node: ast.IfExp, test: ast.expr, wanted: bool) -> Fix:
        available = self.devices.available(node)
        extra = f"and {available.text}" if wanted else f"or not {available.text}"
        return self.context.edit(test, lambda text: f"{operand(text)} {extra}", available)


def _of_type(test: ast.expr) -> bool:
    """Return whether a test compares the name of a type, such as `x.type().startswith("torch.cuda.")`."""
    constants = (node.value for node in ast.walk(test) if isinstance(node, ast.Constant))
    return any(str(each).startswith("torch.cuda.") for each in constants)
