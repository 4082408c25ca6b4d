from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.facts import dotted, of_any_count
from devicefix.facts.values import last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Changed, Rule

_PROCESSES = re.compile(
    r"(^|_)(nprocs?|n_procs|num_procs|world_size|worldsize|num_processes|nproc_per_node)\Z"
)


class GpuCount(Rule):
    """
    ## What it does
    Finds `torch.cuda.device_count()` as a number of processes, a factor or a divisor.

    ## Why it matters
    It is 0 without CUDA. Started with no processes a program does nothing and exits with success; a batch is
    multiplied to nothing; a division fails.

    ## Example
    ```python
    mp.spawn(worker, nprocs=torch.cuda.device_count())
    rank = node * torch.cuda.device_count() + gpu
    ```

    ## Use instead
    ```python
    mp.spawn(worker, nprocs=max(torch.cuda.device_count(), 1))
    rank = node * max(torch.cuda.device_count(), 1) + gpu
    ```

    ## Fix safety
    Safe: with CUDA the number is the same. A number that is also asked whether it is 0 stays; then the places
    that compute with it are fixed.
    """

    code = "DF402"
    name = "gpu-count"
    summary = "The number of GPUs, which may be 0, counts processes or batches"
    MATCHES = (
        Changed(
            "import torch\nimport torch.multiprocessing as mp\n\n\ndef main():\n    n = torch.cuda.device_count()\n"
            "    mp.spawn(work, nprocs=n, args=(n,))\n",
            "import torch\nimport torch.multiprocessing as mp\n\n\ndef main():\n"
            "    n = max(torch.cuda.device_count(), 1)\n    mp.spawn(work, nprocs=n, args=(n,))\n",
        ),
        Changed(
            "import torch\n\nn_gpu = torch.cuda.device_count()\nif n_gpu > 0:\n    net.cuda()\nbatch = size // n_gpu\n",
            "import torch\n\nn_gpu = torch.cuda.device_count()\nif n_gpu > 0:\n    net.cuda()\nbatch = size // max(n_gpu, 1)\n",
        ),
        Changed(
            "import torch, subprocess\n\nn = torch.cuda.device_count()\nfor i in range(n):\n    subprocess.Popen(line)\n",
            "import torch, subprocess\n\nn = max(torch.cuda.device_count(), 1)\nfor i in range(n):\n    subprocess.Popen(line)\n",
        ),
        Changed(
            "import torch\n\nworld_size = args.n or torch.cuda.device_count()\n",
            "import torch\n\nworld_size = args.n or max(torch.cuda.device_count(), 1)\n",
        ),
        Changed(
            "import torch\n\nspawn(work, nprocs=min(torch.cuda.device_count(), size))\n",
            "import torch\n\nspawn(work, nprocs=min(max(torch.cuda.device_count(), 1), size))\n",
        ),
        Changed(
            "import torch\n\nbatch = 32 * torch.cuda.device_count()\n",
            "import torch\n\nbatch = 32 * max(torch.cuda.device_count(), 1)\n",
        ),
        Changed(
            "import torch\n\nargs.world_size = torch.cuda.device_count()\n",
            "import torch\n\nargs.world_size = max(torch.cuda.device_count(), 1)\n",
        ),
    )
    LEAVES = (
        "import torch\n\nif torch.cuda.device_count() > 1:\n    net = torch.nn.DataParallel(net)\n",
        "import torch\n\nn = torch.cuda.device_count()\nprint(n)\n",
        "import torch\n\nbatch = 32 * max(1, torch.cuda.device_count())\n",
        "import torch\n\nif torch.cuda.is_available():\n    batch = size // torch.cuda.device_count()\n",
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._known: dict[str, tuple[bool, list[ast.expr]]] = {}

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not self.facts.call(node, "torch.cuda.device_count") or self.facts.is_guarded(node):
            return
        if self._counts(node):
            yield self._found(node)
            return
        parent = self.facts.tree.parents.get(node)
        if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
            return
        path = dotted(parent.targets[0])
        if path is None:
            return
        told = path in self._known
        if not told:
            self._known[path] = self._counted(path)
        asked, counting = self._known[path]
        if not asked and counting:
            yield self._found(node)
        elif not told:
            yield from map(self._found, counting)

    def _found(self, node: ast.expr) -> Finding:
        edit = Edit(*self.context.source.span(node), lambda text: f"max({text}, 1)")
        return self.finding(node, "the number of GPUs is 0 without CUDA: use at least 1", Fix((edit,)))

    def _counted(self, path: str) -> tuple[bool, list[ast.expr]]:
        """Whether a number is asked whether it is 0, and where the module uses it as a count.

        A parameter of the same name is taken for the same number.
        """
        uses = self.facts.tree.reads(path)
        counting = [use for use in uses if self._counts(use) and not self.facts.is_guarded(use)]
        return any(map(self._asks, uses)), counting

    def _counts(self, node: ast.expr) -> bool:
        """Whether a number is a count of processes, a factor or a divisor where it stands."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Call) and last_name(parent.func) == "min":
            return self._counts(parent)
        if isinstance(parent, ast.Call) and last_name(parent.func) == "range":
            return self._starts_processes(self.facts.tree.parents.get(parent))
        if isinstance(parent, (ast.BoolOp, ast.IfExp)):
            return self._counts(parent)
        if isinstance(parent, ast.Assign):
            return bool(_PROCESSES.search(last_name(parent.targets[0])))
        if isinstance(parent, ast.keyword):
            return parent.arg is not None and bool(_PROCESSES.search(parent.arg))
        if isinstance(parent, ast.BinOp):
            divides = isinstance(parent.op, (ast.Div, ast.FloorDiv, ast.Mod)) and parent.right is node
            return divides or (isinstance(parent.op, ast.Mult) and not isinstance(parent.left, ast.List))
        return False

    def _starts_processes(self, node: ast.AST | None) -> bool:
        """Whether a loop starts a process each time."""
        return isinstance(node, ast.For) and any(
            isinstance(each, ast.Call) and last_name(each.func) in ("Popen", "Process")
            for statement in node.body
            for each in ast.walk(statement)
        )

    def _asks(self, node: ast.expr) -> bool:
        """Whether a number is asked whether it is 0."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Compare):
            other = parent.comparators[0]
            return (
                isinstance(other, ast.Constant)
                and isinstance(other.value, int)
                and of_any_count(parent.ops[0], other.value) is not None
            )
        return isinstance(parent, (ast.If, ast.IfExp, ast.BoolOp, ast.While)) or (
            isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
        )
