from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.arguments import is_gpu_index
from devicefix.facts.values import cuda_device, integer
from devicefix.model import Finding
from devicefix.rewrite.edits import with_keyword
from devicefix.rules.base import Changed, Rule


class CheckpointLoad(Rule):
    """
    ## What it does
    Finds `torch.load(...)` that does not say where to put what it reads, or says CUDA.

    ## Why it matters
    A checkpoint that was saved on a GPU can't be read without CUDA unless `map_location` sends it to the
    CPU: "Attempting to deserialize object on a CUDA device".

    ## Example
    ```python
    state = torch.load("last.pt")
    state = torch.load("last.pt", map_location="cuda:0")
    ```

    ## Use instead
    ```python
    state = torch.load("last.pt", map_location=None if torch.cuda.is_available() else "cpu")
    state = torch.load("last.pt", map_location="cuda:0" if torch.cuda.is_available() else "cpu")
    ```

    ## Fix safety
    Safe: with CUDA everything goes where it went before. `map_location=device` would not be, since it also
    moves to the GPU what was saved on the CPU.
    """

    code = "DF501"
    name = "checkpoint-load"
    summary = "`torch.load` of a GPU's checkpoint fails without CUDA"
    MATCHES = (
        Changed(
            'import torch\n\nnet.load_state_dict(torch.load(path)["model"])\n',
            "import torch\n\n"
            'net.load_state_dict(torch.load(path, map_location=None if torch.cuda.is_available() else "cpu")["model"])\n',
        ),
        Changed(
            "import torch\n\nstate = torch.load(path, map_location='cuda:0')\n",
            "import torch\n\nstate = torch.load(path, map_location='cuda:0' if torch.cuda.is_available() else 'cpu')\n",
        ),
        Changed(
            "import torch\n\nstate = torch.load(path, lambda storage, loc: storage.cuda(0))\n",
            "import torch\n\n"
            'state = torch.load(path, (lambda storage, loc: storage.cuda(0)) if torch.cuda.is_available() else "cpu")\n',
        ),
    )
    LEAVES = (
        'import torch\n\nstate = torch.load(path, map_location="cpu")\n',
        "import torch\n\nstate = torch.load(path, map_location=lambda storage, loc: storage)\n",
        "import torch\n\nstate = torch.load(path, map_location=device)\n",
        "import numpy as np\n\nstate = np.load(path)\n",
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not self.facts.call(node, "torch.load", "torch.jit.load", "torch.hub.load_state_dict_from_url"):
            return
        if self.facts.is_guarded(node) or any(isinstance(arg, ast.Starred) for arg in node.args):
            return
        given = next((each.value for each in node.keywords if each.arg == "map_location"), None)
        position = 2 if self.facts.call(node, "torch.hub.load_state_dict_from_url") else 1
        if given is None and len(node.args) > position:
            given = node.args[position]
        if given is None or (isinstance(given, ast.Constant) and given.value is None):
            yield from self._nowhere(node, given)
        elif self._cuda(given):
            self.context.mark_handled(given)
            yield self.finding(
                given,
                "`map_location` names CUDA, which may not be there",
                self.context.when_cuda(given, '"cpu"', of_cuda=True),
            )

    def _nowhere(self, node: ast.Call, given: ast.expr | None) -> Iterator[Finding]:
        message = "a checkpoint that was saved on a GPU can't be loaded without CUDA: say where to, by `map_location`"
        if any(each.arg is None for each in node.keywords):
            return  # `**kwargs` may hold it
        if given is not None:
            yield self.finding(node, message, self.context.when_cuda(given, '"cpu"', of_cuda=True))
            return
        where = self.devices.either(node, "None", of_cuda=True)
        yield self.finding(
            node, message, self.context.edit(node, with_keyword("map_location", where.text), where)
        )

    def _cuda(self, given: ast.expr) -> bool:
        if cuda_device(self.facts, given) or integer(given) or is_gpu_index(given):
            return True
        if isinstance(given, ast.Dict):
            return any(cuda_device(self.facts, value) for value in given.values)
        if isinstance(given, ast.Lambda):
            return any(
                isinstance(each, ast.Attribute) and each.attr == "cuda" for each in ast.walk(given.body)
            )
        return self.facts.call(given, "torch.cuda.current_device")
