from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.arguments import device_argument, device_fix
from devicefix.model import Finding
from devicefix.rules.base import Changed, Rule


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
            "import torch\n\nx = x.to(y.get_device())\ncuda = 1\n",
            "import torch\n\nx = x.to(y.device)\ncuda = 1\n",
        ),
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
        if target is None or self.facts.is_guarded(node):
            return
        fix = device_fix(self.context, target)
        if fix is not None:
            self.context.mark_handled(target)
            yield self.finding(
                node, f"`.to({self.context.source.code(target)})` needs CUDA: use `.to(device)`", fix
            )
