from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.arguments import is_gpu_index
from devicefix.facts.values import cuda_literal, cuda_string, index_or_none, integer, last_name
from devicefix.model import Finding, Fix
from devicefix.rules.base import Changed, Rule


class TorchDevice(Rule):
    """
    ## What it does
    Finds `torch.device("cuda")` and its kin: with an index, a number alone, or a string put together.

    ## Why it matters
    The device itself can be made anywhere, but whatever is sent to it fails without CUDA.

    ## Example
    ```python
    device = torch.device("cuda")
    device = torch.device("cuda:{:d}".format(rank))
    device = torch.device("cuda", rank)
    ```

    ## Use instead
    ```python
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device("cuda:{:d}".format(rank) if torch.cuda.is_available() else "cpu")
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    ```

    ## Fix safety
    Safe. A device that is only compared with another (`x.device == torch.device("cuda")`) is left alone:
    the question is as right on a CPU.
    """

    code = "DF201"
    name = "torch-device"
    summary = "`torch.device(...)` names CUDA whether or not it is there"
    MATCHES = (
        Changed(
            'import torch\n\ndevice = torch.device("cuda")\n',
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n',
        ),
        Changed(
            "import torch as th\n\ndevice = th.device('cuda:1')\n",
            "import torch as th\n\ndevice = th.device('cuda:1' if th.cuda.is_available() else 'cpu')\n",
        ),
        Changed(
            'import torch\n\ndevice = torch.device("cuda:{:d}".format(rank))\n',
            'import torch\n\ndevice = torch.device("cuda:{:d}".format(rank) if torch.cuda.is_available() else "cpu")\n',
        ),
        Changed(
            'import torch\n\ndevice = torch.device("cuda", args.local_rank)\n',
            'import torch\n\ndevice = torch.device("cuda", args.local_rank) '
            'if torch.cuda.is_available() else torch.device("cpu")\n',
        ),
        Changed(
            "import torch\n\nx = torch.ones(2, device=torch.device(0))\n",
            'import torch\n\nx = torch.ones(2, device=torch.device(0 if torch.cuda.is_available() else "cpu"))\n',
        ),
    )
    LEAVES = (
        'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n',
        'import torch\n\ndevice = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")\n',
        'import torch\n\nif x.device != torch.device("cuda"):\n    print(x)\n',
        'import torch\n\ndevice = torch.device("cpu")\n',
        "import torch\n\ndevice = torch.device(name)\n",
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not self.facts.call(node, "torch.device"):
            return
        if isinstance(self.facts.tree.parents.get(node), ast.Compare) or self.facts.is_guarded(node):
            return
        fix = self._fix(node)
        if fix is not None:
            self.context.mark_handled(*node.args, *node.keywords)
            code = self.context.source.code(node)
            yield self.finding(node, f"`{code}` is no device on a machine without CUDA", fix)

    def _fix(self, node: ast.Call) -> Fix | None:
        arguments = [*node.args, *(each.value for each in node.keywords)]
        if len(arguments) == 1:
            only = arguments[0]
            if self.devices.accelerator and cuda_literal(only) is None:
                return self.context.when_cuda(node, f'{self.devices.torch(node).text}.device("cpu")')
            if cuda_string(only) or integer(only) or is_gpu_index(only) or self._number(only):
                return self.context.when_cuda(only, '"cpu"')
        elif len(arguments) == 2 and cuda_string(arguments[0]):
            torch = self.devices.torch(node)
            return self.context.when_cuda(node, f'{torch.text}.device("cpu")')
        return None

    def _number(self, node: ast.expr) -> bool:
        """A variable that is known to hold an int: `torch.device(i)` is then a GPU's number."""
        return bool(last_name(node)) and index_or_none(self.facts, node)
