from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.config.evidence import Seen
from devicefix.devices.arguments import device_argument
from devicefix.facts.flow.kinds import Kind
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule

_MOVES = ("to", "to_empty")


class RequestedDevice(Rule):
    """
    ## What it does
    Reports a parameter, a setting or another value that devicefix can't determine, if a run showed that the value is a
    CUDA device. Only `devicefix migrate --run` uses this rule.

    ## Why it matters
    Without CUDA, using this device raises an error such as "Torch not compiled with CUDA enabled".

    ## Example
    ```python
    def move(batch, device):
        return {key: value.to(device) for key, value in batch.items()}
    ```

    ## Use instead
    ```python
    def move(batch, device):
        return {key: value.to(device if torch.cuda.is_available() else "cpu") for key, value in batch.items()}
    ```

    ## Fix safety
    The fix is unsafe because, without CUDA, the program uses the CPU even if the value is another device, such as
    `xpu`. `migrate` keeps the fix only if the run then passes, with the same numbers as on simulated CUDA.
    """

    code = "DF208"
    name = "requested-device"
    needs_run = True
    attributes = _MOVES
    summary = "A run showed that a value is a CUDA device"
    INVALID = (
        Example(
            "a parameter",
            before="""
                import torch

                def move(batch, device):
                    return {key: value.to(device) for key, value in batch.items()}
            """,
            after="""
                import torch

                def move(batch, device):
                    return {key: value.to(device if torch.cuda.is_available() else "cpu") for key, value in batch.items()}
            """,
            unsafe=True,
            seen=(Seen("request", 4, ""),),
        ),
        Example(
            "the argument of a function that creates a tensor",
            before="""
                import torch

                x = torch.tensor(
                    [0.05, 0.95],
                    device=config.device,
                )
            """,
            after="""
                import torch

                x = torch.tensor(
                    [0.05, 0.95],
                    device=config.device if torch.cuda.is_available() else "cpu",
                )
            """,
            unsafe=True,
            seen=(Seen("request", 3, ""),),
        ),
    )
    VALID = (
        Example("nothing seen at the line", "x = y.to(device)\n", seen=(Seen("request", 2, ""),)),
        Example(
            "a dtype",
            """
                import torch

                x = y.to(torch.float16)
            """,
            seen=(Seen("request", 3, ""),),
        ),
        Example(
            "a device that depends on availability",
            """
                import torch

                x = y.to(place if torch.cuda.is_available() else "cpu")
            """,
            seen=(Seen("request", 3, ""),),
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if not any(seen.kind == "request" and seen.line in lines for seen in self.context.options.seen):
            return
        is_move = isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES
        named = next((keyword.value for keyword in node.keywords if keyword.arg == "device"), None)
        target = device_argument(node) if is_move else named
        if target is None or isinstance(target, (ast.Constant, ast.IfExp)) or self.facts.is_guarded(node):
            return
        if self.facts.kinds.of(target).are({Kind.TENSOR, Kind.DTYPE}):
            return
        code = self.context.source.code(target)
        message = f"a run showed that `{code}` is a CUDA device; without CUDA, use the CPU"
        why = "without CUDA, the fix also replaces other devices"
        yield self.finding(target, message, self.context.when_cuda(target, '"cpu"', why))
