from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from devicefix.facts.exports import default_devices
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule


class LegacyConstructor(Rule):
    """
    ## What it does
    With `--target accelerator`, finds `torch.Tensor(...)` in projects that make a CUDA type the default tensor type.

    ## Why it matters
    Accelerators such as XPU have no default tensor type, only a default device. `torch.Tensor(...)` ignores the default
    device and creates a CPU tensor, so operations that combine this tensor with tensors on the accelerator fail.

    ## Example
    ```python
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    far = torch.Tensor([1e10])
    ```

    ## Use instead
    ```python
    if torch.cuda.is_available():
        torch.set_default_tensor_type("torch.cuda.FloatTensor")
    else:
        torch.set_default_device(device)
    far = torch.Tensor([1e10]).to(torch.empty(0).device)
    ```

    ## Fix safety
    The fix is usually safe: `torch.empty(0)` follows the default type and device. With CUDA and on a CPU, the tensor
    is already on the right device, so the move does nothing. The fix is unsafe if the project also uses `with
    torch.device(...)`, which `torch.Tensor` ignores on CUDA too.
    """

    code = "DF303"
    name = "legacy-constructor"
    summary = "`torch.Tensor(...)` ignores the default device"
    targets = ("accelerator",)
    words = (b"Tensor(",)
    fails = False
    INVALID = (
        Example(
            "a default type of CUDA",
            before="""
                import torch

                torch.set_default_tensor_type("torch.cuda.FloatTensor")
                far = torch.Tensor([1e10])
            """,
            after="""
                import torch

                device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")

                if torch.cuda.is_available():
                    torch.set_default_tensor_type("torch.cuda.FloatTensor")
                else:
                    torch.set_default_device(device)
                far = torch.Tensor([1e10]).to(torch.empty(0).device)
            """,
        ),
        Example(
            "a device in a with statement as well",
            unsafe=True,
            before="""
                import torch

                torch.set_default_tensor_type(torch.cuda.FloatTensor)
                with torch.device("meta"):
                    net = make(torch.Tensor(3, 4))
            """,
            after="""
                import torch

                device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")

                if torch.cuda.is_available():
                    torch.set_default_tensor_type(torch.cuda.FloatTensor)
                else:
                    torch.set_default_device(device)
                with torch.device("meta"):
                    net = make(torch.Tensor(3, 4).to(torch.empty(0).device))
            """,
        ),
    )
    VALID = (
        Example(
            "a tensor that is moved",
            """
                import torch

                if torch.cuda.is_available():
                    torch.set_default_tensor_type(torch.cuda.FloatTensor)
                x = torch.Tensor(3).to(device)
            """,
        ),
        Example(
            "no default type of CUDA",
            """
                import torch

                torch.set_default_tensor_type(torch.DoubleTensor)
                x = torch.Tensor(3)
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not self.facts.call(node, "torch.Tensor") or node.keywords or "type" not in self._defaults:
            return
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Attribute) and parent.attr in ("to", "cuda", "cpu"):
            return
        torch = self.devices.torch(node)
        why = (
            "on CUDA, `torch.Tensor` ignores `with torch.device(...)`, but the fixed code does not"
            if "with" in self._defaults
            else ""
        )
        fix = self.context.edit(node, lambda code: f"{code}.to({torch.text}.empty(0).device)", torch, why)
        yield self.finding(
            node,
            "`torch.Tensor` ignores the default device; move the tensor to this device",
            fix,
        )

    @cached_property
    def _defaults(self) -> frozenset[str]:
        """The ways in which the module, and those used together with it, make CUDA the default."""
        here = default_devices(self.context.source.text.encode())
        return here.union(self.context.project.default_devices(self.devices.path))
