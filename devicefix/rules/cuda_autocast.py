from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from devicefix.facts.exports import has_low_precision
from devicefix.facts.values import cuda_string
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule

_OF_ANY_DEVICE = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")
_OF_CUDA = ("torch.cuda.amp.autocast", "torch.cuda.amp.autocast_mode.autocast")


class CudaAutocast(Rule):
    """
    ## What it does
    Reports autocast for CUDA where the program also has tensors or modules in half precision or bfloat16.

    ## Why it matters
    On a CPU, autocast for CUDA switches itself off. That does no harm as long as everything is in float32. But autocast
    also casts the operands of a matrix product or a convolution to one type: without it, a layer in float32 that gets a
    tensor in bfloat16 raises "mat1 and mat2 must have the same dtype".

    ## Example
    ```python
    embedding = nn.Embedding(n, d).to(torch.bfloat16)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = head(embedding(x))
    ```

    ## Use instead
    ```python
    with torch.autocast(device.type, dtype=torch.bfloat16):
        loss = head(embedding(x))
    ```

    ## Fix safety
    There is no fix: where the types agree, autocast for the CPU would change the numbers there. Low precision counts
    in the same file, and in the files that are used together with it. An autocast with `enabled=flag` is not reported:
    the program also runs without it.
    """

    code = "DF407"
    name = "cuda-autocast"
    summary = "Autocast for CUDA is off on a CPU, where low precision may need it"
    words = (b"autocast",)
    INVALID = (
        Example(
            "a module in bfloat16",
            before="""
                import torch

                embedding = torch.nn.Embedding(5, 4).to(torch.bfloat16)
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    y = torch.nn.Linear(4, 4)(embedding(x))
            """,
        ),
        Example(
            "a tensor in half precision",
            before="""
                import torch
                from torch.cuda.amp import autocast


                @autocast()
                def step(net, x):
                    return net(x.half())
            """,
        ),
        Example(
            "a default dtype",
            before="""
                import torch

                torch.set_default_dtype(torch.bfloat16)


                def step(net, x):
                    with torch.amp.autocast(device_type="cuda", enabled=True):
                        return net(x)
            """,
        ),
    )
    VALID = (
        Example(
            "float32 only",
            """
                import torch

                with torch.autocast("cuda", dtype=torch.bfloat16):
                    y = net(x)
            """,
        ),
        Example(
            "the type of the device",
            """
                import torch

                net = net.half()
                with torch.autocast(device.type, dtype=torch.half):  # cuda
                    y = net(x)
            """,
        ),
        Example(
            "off",
            """
                import torch

                with torch.cuda.amp.autocast(enabled=False):
                    y = net(x.half())
            """,
        ),
        Example(
            "a flag",
            """
                import torch


                def step(net, x, amp):
                    with torch.cuda.amp.autocast(amp):
                        return net(x if amp else x.half())
            """,
        ),
        Example(
            "under a guard",
            """
                import torch

                x = torch.zeros(2, dtype=torch.half)
                if torch.cuda.is_available():
                    with torch.autocast("cuda"):
                        y = net(x)
            """,
        ),
        Example(
            "a question about the type",
            """
                import torch

                with torch.autocast("cuda"):
                    y = net(x)
                assert y.dtype == torch.half
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not self._is_of_cuda(node) or self.facts.is_guarded(node):
            return
        enabled = next((keyword.value for keyword in node.keywords if keyword.arg == "enabled"), None)
        if enabled is None and self.facts.call(node, *_OF_CUDA) and node.args:
            enabled = node.args[0]
        chosen = enabled is not None and not (isinstance(enabled, ast.Constant) and enabled.value)
        if not chosen and (self._is_low or self.context.project.has_low_precision(self.devices.path)):
            yield self.finding(
                node,
                "autocast for CUDA switches itself off on a CPU, where operands in low precision and in float32 then"
                " differ in dtype; use `torch.autocast(device.type, ...)`",
            )

    @cached_property
    def _is_low(self) -> bool:
        """Return whether the module has low precision itself."""
        return has_low_precision(self.context.source.text.encode())

    def _is_of_cuda(self, node: ast.Call) -> bool:
        if self.facts.call(node, *_OF_CUDA):
            return True
        if not self.facts.call(node, *_OF_ANY_DEVICE):
            return False
        kinds = [
            *node.args[:1],
            *(keyword.value for keyword in node.keywords if keyword.arg == "device_type"),
        ]
        return any(cuda_string(kind) for kind in kinds)
