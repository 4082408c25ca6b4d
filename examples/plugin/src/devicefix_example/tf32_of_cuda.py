"""The rule EX101; copy this file to begin one of your own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.plugins import Changed, Edit, Finding, Fix, Rule, Safety


class Tf32OfCuda(Rule):
    """
    ## What it does
    Finds `torch.backends.cuda.matmul.allow_tf32 = True`.

    ## Why it matters
    It speeds up CUDA alone. `torch.set_float32_matmul_precision("high")` does the same there, and asks for
    the fast product of matrices on other devices as well.

    ## Example
    ```python
    torch.backends.cuda.matmul.allow_tf32 = True
    ```

    ## Use instead
    ```python
    torch.set_float32_matmul_precision("high")
    ```

    ## Fix safety
    Unsafe: on devices other than CUDA, products of matrices may become less precise.
    """

    code = "EX101"
    name = "tf32-of-cuda"
    summary = "TensorFloat-32 that is asked for on CUDA alone"
    words = (b"allow_tf32",)
    MATCHES = (
        Changed(
            "import torch\n\ntorch.backends.cuda.matmul.allow_tf32 = True\n",
            'import torch\n\ntorch.set_float32_matmul_precision("high")\n',
            unsafe=True,
        ),
        Changed("import torch as th\n\nth.backends.cuda.matmul.allow_tf32 = fast\n", None),
    )
    LEAVES = (
        "import torch\n\ntorch.backends.cuda.matmul.allow_tf32 = False\n",
        "import settings\n\nsettings.backends.cuda.matmul.allow_tf32 = True\n",
    )

    def visit_Assign(self, node: ast.Assign) -> Iterator[Finding]:
        names = [self.facts.resolve(target) for target in node.targets]
        if names != ["torch.backends.cuda.matmul.allow_tf32"] or _is(node.value, False):
            return
        fix = None
        torch = self.facts.torch_name(node)
        if _is(node.value, True) and torch is not None:
            call = self.context.source.quoted(f'{torch}.set_float32_matmul_precision("high")')
            fix = Fix((Edit(*self.context.source.span(node), call),), Safety.UNSAFE)
        yield self.finding(node, 'TF32 for CUDA alone: use `torch.set_float32_matmul_precision("high")`', fix)


def _is(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
