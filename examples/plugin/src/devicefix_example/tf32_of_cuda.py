"""The rule EX101. Copy this file to start your own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.plugins import Example, Finding, Rule


class Tf32OfCuda(Rule):
    """## What it does
    Finds `torch.backends.cuda.matmul.allow_tf32 = True`.

    ## Why it matters
    It only speeds up CUDA. `torch.set_float32_matmul_precision("high")` has the same effect there, and also
    allows fast matrix products on other devices.

    ## Example
    ```python
    torch.backends.cuda.matmul.allow_tf32 = True
    ```

    ## Use instead
    ```python
    torch.set_float32_matmul_precision("high")
    ```

    ## Fix safety
    Unsafe: on other devices, matrix products may become less precise.
    """

    code = "EX101"
    name = "tf32-of-cuda"
    summary = "TensorFloat-32 is enabled for CUDA only"
    words = (b"allow_tf32",)
    INVALID = (
        Example(
            "switched on",
            before="""
                import torch

                torch.backends.cuda.matmul.allow_tf32 = True
            """,
            after="""
                import torch

                torch.set_float32_matmul_precision("high")
            """,
            unsafe=True,
        ),
        Example(
            "by a variable",
            before="""
                import torch as th

                th.backends.cuda.matmul.allow_tf32 = fast
            """,
        ),
    )
    VALID = (
        Example(
            "switched off",
            """
                import torch

                torch.backends.cuda.matmul.allow_tf32 = False
            """,
        ),
        Example(
            "another module",
            """
                import settings

                settings.backends.cuda.matmul.allow_tf32 = True
            """,
        ),
    )

    def visit_Assign(self, node: ast.Assign) -> Iterator[Finding]:
        names = [self.facts.resolve(target) for target in node.targets]
        if names != ["torch.backends.cuda.matmul.allow_tf32"] or _is(node.value, False):
            return
        fix = None
        torch = self.facts.torch_name(node)
        if _is(node.value, True) and torch is not None:
            call = f'{torch}.set_float32_matmul_precision("high")'
            fix = self.context.replace_statement(node, call, "it sets the precision of other devices as well")
        yield self.finding(
            node, 'enables TF32 for CUDA only; use `torch.set_float32_matmul_precision("high")`', fix
        )


def _is(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
