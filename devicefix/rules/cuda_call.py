from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.arguments import device_argument, runtime_device, target_device
from devicefix.devices.choose import DeviceExpr
from devicefix.devices.context import Context
from devicefix.devices.methods import CustomCuda, custom_cuda
from devicefix.facts import dotted
from devicefix.facts.values import last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rewrite.edits import moved, receiver_of
from devicefix.rules.base import Changed, Rule

_SHORT = 60  # characters of code that may be written twice


class CudaCall(Rule):
    """
    ## What it does
    Finds `x.cuda()`, on a tensor or a module, with or without arguments.

    ## Why it matters
    Without CUDA the call raises "Torch not compiled with CUDA enabled".

    ## Example
    ```python
    model = Net().cuda()
    target = target.cuda(non_blocking=True)
    ```

    ## Use instead
    ```python
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    model = Net().to(device)
    target = target.to(device, non_blocking=True)
    ```

    ## Fix safety
    Safe: `torch.device("cuda")` without an index is the current CUDA device, as it is for `.cuda()`. A
    number is kept: `.cuda(1)` goes to `cuda:1`. Where the argument may be anything, the call itself is
    kept and made to depend on `torch.cuda.is_available()`, and so it is where it may reach a `cuda` method of
    the project's own. There is no fix for `.cuda(*args)`.
    """

    code = "DF101"
    name = "cuda-call"
    summary = "`.cuda()` moves to a GPU that may not be there"
    MATCHES = (
        Changed(
            "import torch\n\nz = torch.randn(3).cuda(x.data.get_device())\n",
            "import torch\n\nz = torch.randn(3).to(x.data.device)\n",
        ),
        Changed(
            "import torch\n\n\nclass Own:\n    def cuda(self):\n        pass\n\n\n"
            "net = Own()\nif simple:\n    net = torch.nn.Linear(1, 1)\nnet.cuda()\n",
            "import torch\n\n\nclass Own:\n    def cuda(self):\n        pass\n\n\n"
            "net = Own()\nif simple:\n    net = torch.nn.Linear(1, 1)\nif torch.cuda.is_available():\n    net.cuda()\n",
        ),
        Changed(
            "import torch\n\n\ndef place(storage, location):\n    return storage.cuda(0)\n",
            "import torch\n\n\ndef place(storage, location):\n"
            "    return storage.cuda(0) if torch.cuda.is_available() else storage\n",
        ),
        Changed(
            "import torch\n\n\ndef move(x, where):\n    return f(x).cuda(where)\n",
            "import torch\n\n\ndef move(x, where):\n"
            "    return f(x).cuda(where) if torch.cuda.is_available() else f(x)\n",
        ),
        Changed(
            "import torch\n\n\ndef move(x, where):\n    return f(\n        x,\n    ).cuda(where)\n",
            "import torch\n\n\ndef move(x, where):\n    return f(\n        x,\n    ).to("
            '("cuda" if where is None else where) if torch.cuda.is_available() else "cpu")\n',
        ),
        Changed("import torch\n\ny = f(\n    x\n).cuda(pick(x))\n", None),
        Changed(
            "import torch\n\nx = torch.ones(2).cuda()\n",
            "import torch\n\n"
            'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "x = torch.ones(2).to(device)\n",
        ),
        Changed(
            "import torch\n\nx = torch.ones(2).cuda(1)\ny = x.cuda(1, True)\n",
            "import torch\n\n"
            'device1 = torch.device("cuda:1" if torch.cuda.is_available() else "cpu")\n\n'
            "x = torch.ones(2).to(device1)\ny = x.to(device1, non_blocking=True)\n",
        ),
        Changed(
            "import torch\n\n\ndef move(x, gpu):\n    return x.cuda(gpu, non_blocking=True)\n",
            "import torch\n\n\ndef move(x, gpu):\n"
            "    return x.cuda(gpu, non_blocking=True) if torch.cuda.is_available() else x\n",
        ),
        Changed(
            "import torch\n\n\ndef move(x, gpu: int):\n    return (x + 1).cuda(gpu)\n",
            "import torch\n\n\ndef move(x, gpu: int):\n"
            '    return (x + 1).to(torch.device("cuda", gpu) if torch.cuda.is_available() else "cpu")\n',
        ),
        Changed(
            "import torch\n\ndevice = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
            "x = torch.ones(2)  \\\n    .cuda(  # there\n        device=None,\n    )\n",
            "import torch\n\ndevice = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
            "x = torch.ones(2)  \\\n    .to(  # there\n        device,\n    )\n",
        ),
    )
    LEAVES = (
        "import torch\n\nif torch.cuda.is_available():\n    y = torch.ones(2).cuda() + 1\n",
        "import torch\n\nuse = torch.cuda.is_available()\ny = f(x.cuda()) if use else f(x)\n",
        "from numba import cuda\n\n\n@cuda.jit\ndef kernel(x):\n    pass\n",
        "class Own:\n    def cuda(self):\n        pass\n\n\nnet = Own()\nnet.cuda()\n",
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "cuda":
            return
        receiver = node.func.value
        if self.facts.resolve(receiver) is not None or self.facts.is_guarded(node):
            return
        own = custom_cuda(self.context, receiver)
        if own is CustomCuda.ALWAYS:
            return  # what its method does is looked at there
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(
            not each.arg for each in node.keywords
        ):
            yield self.finding(
                node, "`.cuda(...)` needs CUDA; unpack its arguments, so that they can be kept"
            )
        elif own is CustomCuda.MAYBE:
            message = (
                "`.cuda()` needs CUDA, and may be a method of the project's own, which `.to(device)` would not call: "
                "call it only where there is CUDA"
            )
            yield self.finding(node, message, _kept(self.context, node))
        else:
            yield self._move(node)

    def _move(self, node: ast.Call) -> Finding:
        fix = move(self.context, node)
        if _storage(node):
            return self.finding(node, "a storage can't be moved without CUDA: keep it as it is there", fix)
        if fix is None:
            message = (
                "`.cuda(...)` needs CUDA: it is not known whether its argument is a number, None or a device"
            )
            return self.finding(node, f"{message}; make it a `torch.device` and use `.to(device)`")
        return self.finding(node, "`.cuda()` needs CUDA: use `.to(device)`", fix)


def move(context: Context, node: ast.Call) -> Fix | None:
    """The fix that makes `.to(device)` of `.cuda()`."""
    target = device_argument(node)
    use = None if _storage(node) else target_device(context, node, target)
    if use is None:
        fix = _kept(context, node)
        if fix is not None or target is None or _storage(node):
            return fix
        use = runtime_device(context, node, target)
    return None if use is None else context.edit(node, moved(use.text), use)


def _kept(context: Context, node: ast.Call) -> Fix | None:
    """A fix that keeps the call and makes it depend on CUDA; the receiver is written, not computed, twice."""
    assert isinstance(node.func, ast.Attribute)
    receiver = node.func.value
    parent = context.facts.tree.parents.get(node)
    if isinstance(parent, ast.Expr) and dotted(receiver):
        return context.put_under_guard(parent)
    if _super(receiver):
        return context.when_cuda(node, "self")
    code = context.source.code(receiver)
    if len(code) > _SHORT or "\n" in code or "\r" in code:
        return None
    return context.when_cuda(node, receiver_of, of_cuda=True)


def _storage(node: ast.Call) -> bool:
    """Whether the receiver is a storage: those take no `.to(device)`."""
    return isinstance(node.func, ast.Attribute) and "storage" in last_name(node.func.value)


def _super(receiver: ast.expr) -> bool:
    return (
        isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Name) and receiver.func.id == "super"
    )


def collapsed(context: Context, node: ast.Call, use: DeviceExpr) -> Edit:
    """The edit that makes `.to(use)` of a `.cuda()` that stands under a guard."""
    return Edit(*context.source.span(node), moved(use.text))
