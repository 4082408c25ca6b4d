from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.device import Use
from devicefix.facts.values import (
    cuda_literal,
    cuda_string,
    device_name,
    index_name,
    last_name,
    literal_index,
)
from devicefix.finding import Finding, Fix
from devicefix.rule import Changed, Context, Rule
from devicefix.rules.cuda_call import device_argument


class ToCuda(Rule):
    """
    ## What it does
    Finds `x.to(...)` with a CUDA device written out: `"cuda"`, `"cuda:1"`, `0`, `torch.device("cuda")`,
    `f"cuda:{rank}"`, the number of a GPU.

    ## Why it matters
    Without CUDA the call raises "Torch not compiled with CUDA enabled".

    ## Example
    ```python
    model.to("cuda")
    batch = batch.to(f"cuda:{rank}", non_blocking=True)
    ```

    ## Use instead
    ```python
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    model.to(device)
    batch = batch.to(f"cuda:{rank}" if torch.cuda.is_available() else "cpu", non_blocking=True)
    ```

    ## Fix safety
    Safe: on a machine with CUDA the same device is named as before.
    """

    code = "DF102"
    name = "to-cuda"
    summary = "`.to(...)` names a CUDA device"
    MATCHES = (
        Changed(
            'import torch\n\nmodel.to("cuda")\n',
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\nmodel.to(device)\n',
        ),
        Changed(
            "import torch\n\nx = x.to(device=torch.device('cuda:1'), dtype=torch.half)\n",
            "import torch\n\ndevice1 = torch.device('cuda:1' if torch.cuda.is_available() else 'cpu')\n\n"
            "x = x.to(device=device1, dtype=torch.half)\n",
        ),
        Changed(
            'import torch\n\nx = x.to(f"cuda:{rank}")\ny = y.to(rank)\n',
            'import torch\n\nx = x.to(f"cuda:{rank}" if torch.cuda.is_available() else "cpu")\n'
            'y = y.to(rank if torch.cuda.is_available() else "cpu")\n',
        ),
    )
    LEAVES = (
        "x = x.to(device)\n",
        'x = x.to("cpu")\n',
        "import torch\n\nx = x.to(torch.float32)\n",
        'import torch\n\nx = x.to("cuda" if torch.cuda.is_available() else "cpu")\n',
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("to", "to_empty"):
            return
        target = device_argument(node)
        if target is None or self.facts.guarded(node):
            return
        fix = named_device(self.context, target)
        if fix is not None:
            self.context.claim(target)
            yield self.finding(
                node, f"`.to({self.context.source.code(target)})` needs CUDA: use `.to(device)`", fix
            )


def named_device(context: Context, target: ast.expr) -> Fix | None:
    """The fix for an expression that names a CUDA device where a device object will do."""
    use = _definite(context, target)
    if use is not None:
        return context.replace(target, use)
    if cuda_string(target) or context.facts.call(target, "torch.cuda.current_device") or gpu_number(target):
        return context.conditional(target, '"cpu"')
    return None


def gpu_number(target: ast.expr) -> bool:
    """Whether a name or attribute is called what the number of a GPU is called."""
    name = last_name(target)
    return index_name(name) and not device_name(name)


def _definite(context: Context, target: ast.expr) -> Use | None:
    number = literal_index(target)
    if number is not None:
        return context.devices.indexed(target, number)
    index = cuda_literal(target)
    if context.facts.call(target, "torch.device"):
        assert isinstance(target, ast.Call)
        if len(target.args) == 1 and not target.keywords:
            index = cuda_literal(target.args[0])
    if index is None:
        return context.devices.current(target)
    return context.devices.indexed(target, index) if isinstance(index, int) else None
