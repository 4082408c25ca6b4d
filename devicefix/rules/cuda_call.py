from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum

from devicefix.device import Use
from devicefix.facts import Facts, dotted
from devicefix.facts.values import current_device, index_or_none, last_name, literal_index
from devicefix.finding import Edit, Finding, Fix
from devicefix.rewriting import moved
from devicefix.rule import Changed, Context, Rule


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
    kept and made to depend on `torch.cuda.is_available()`. There is no fix for `.cuda(*args)`.
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
        Changed("import torch\n\n\ndef move(x, where):\n    return f(x).cuda(where)\n", None),
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
        if self.facts.resolve(receiver) is not None or self.facts.guarded(node):
            return
        own = own_cuda(self.context, receiver)
        if own is Own.ALWAYS:
            return  # what its method does is looked at there
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(
            not each.arg for each in node.keywords
        ):
            yield self.finding(
                node, "`.cuda(...)` needs CUDA; unpack its arguments, so that they can be kept"
            )
        elif own is Own.MAYBE:
            message = "`.cuda()` needs CUDA, and may be a method of the project's own, which `.to(device)` would not call"
            yield self.finding(node, message, _kept(self.context, node))
        else:
            yield self._move(node)

    def _move(self, node: ast.Call) -> Finding:
        fix = move(self.context, node)
        if fix is None:
            message = (
                "`.cuda(...)` needs CUDA: it is not known whether its argument is a number, None or a device"
            )
            return self.finding(node, f"{message}; make it a `torch.device` and use `.to(device)`")
        return self.finding(node, "`.cuda()` needs CUDA: use `.to(device)`", fix)


class Own(Enum):
    """Whether `x.cuda()` reaches a method that the project has written itself."""

    NEVER = 0
    MAYBE = 1
    ALWAYS = 2


def own_cuda(context: Context, receiver: ast.expr) -> Own:
    """Whether an object is of a class that defines or inherits a `cuda` method of the project's own."""
    classes = context.project.cuda_classes
    if not classes:
        return Own.NEVER
    if isinstance(receiver, ast.Call):
        return Own.ALWAYS if last_name(receiver.func) in classes else Own.NEVER
    if isinstance(receiver, ast.Name) and receiver.id == "self":
        owner = next(
            (each for _, each in context.facts.tree.ancestors(receiver) if isinstance(each, ast.ClassDef)),
            None,
        )
        return Own.ALWAYS if owner is not None and owner.name in classes else Own.NEVER
    values = [binding.value for binding in context.facts.bindings(receiver)]
    answers = [own_cuda(context, value) for value in values if isinstance(value, ast.Call)]
    # `x = x.cuda()` says nothing of what x is.
    made = [
        value
        for value in values
        if not (isinstance(value, ast.Call) and last_name(value.func) in ("cuda", "to"))
    ]
    if made and len(answers) >= len(made) and Own.ALWAYS in answers:
        unsure = answers.count(Own.ALWAYS) < len(made)
        return Own.MAYBE if unsure else Own.ALWAYS
    if Own.ALWAYS in answers or last_name(receiver) in context.project.cuda_names:
        return Own.MAYBE
    return Own.NEVER


def device_argument(node: ast.Call) -> ast.expr | None:
    """What a call of `.cuda(...)` or `.to(...)` says about the device, None for nothing."""
    if node.args:
        return node.args[0]
    return next((each.value for each in node.keywords if each.arg == "device"), None)


def move(context: Context, node: ast.Call) -> Fix | None:
    """The fix that makes `.to(device)` of `.cuda()`."""
    target = device_argument(node)
    use = target_device(context, node, target)
    if use is not None and not _storage(node):
        return context.edit(node, moved(use.text), use)
    return _kept(context, node)


def target_device(context: Context, node: ast.Call, target: ast.expr | None) -> Use | None:
    """The device that a call of `.cuda(target)` moves to, or the CPU; None where the target may be anything."""
    facts, devices = context.facts, context.devices
    if target is None or (isinstance(target, ast.Constant) and target.value is None):
        return devices.current(node)
    index = literal_index(target)
    if index is not None:
        return devices.indexed(node, index)
    code = context.source.code(target)
    if _number_of_tensor(target):
        return Use(code[: code.rindex(".get_device")].rstrip() + ".device")
    if _device(facts, target):
        return Use(code)
    if index_or_none(facts, target):
        torch = devices.torch(node)
        return devices.string(node, context.source.quoted(f'{torch.text}.device("cuda", ') + f"{code})")
    return None


def _number_of_tensor(target: ast.expr) -> bool:
    """`y.get_device()`, which is -1 on a CPU; `y.device` is the same place on both."""
    return (
        isinstance(target, ast.Call)
        and isinstance(target.func, ast.Attribute)
        and target.func.attr == "get_device"
        and not target.args
    )


def _device(facts: Facts, target: ast.expr) -> bool:
    """Whether a name is bound to a device that is the CPU where there is no CUDA."""
    return isinstance(target, ast.Name) and current_device(facts, target)


def _kept(context: Context, node: ast.Call) -> Fix | None:
    """A fix that keeps the call and makes it depend on CUDA; the receiver must bear being named twice."""
    assert isinstance(node.func, ast.Attribute)
    receiver = node.func.value
    parent = context.facts.tree.parents.get(node)
    if isinstance(parent, ast.Expr) and dotted(receiver):
        return context.guarded(parent)
    if not isinstance(receiver, (ast.Name, ast.Attribute)):
        return None if not _super(receiver) else context.conditional(node, "self")
    if any(isinstance(each, ast.Call) for each in ast.walk(receiver)):
        return None
    return context.conditional(node, context.source.code(receiver))


def _storage(node: ast.Call) -> bool:
    """Whether the receiver is a storage: those take no `.to(device)`."""
    return isinstance(node.func, ast.Attribute) and "storage" in last_name(node.func.value)


def _super(receiver: ast.expr) -> bool:
    return (
        isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Name) and receiver.func.id == "super"
    )


def collapsed(context: Context, node: ast.Call, use: Use) -> Edit:
    """The edit that makes `.to(use)` of a `.cuda()` that stands under a guard."""
    return Edit(*context.source.span(node), moved(use.text))
