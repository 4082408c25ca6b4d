from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.choose import DeviceExpr
from devicefix.devices.tensors import expressions
from devicefix.facts.scopes import dotted
from devicefix.model import Finding, Fix, Safety
from devicefix.rules.base import Changed, Rule

_MOVES = {"cpu", "detach", "numpy"}
_TO_SCALAR = {"mean", "sum", "prod", "norm"}


class ScalarIndex(Rule):
    """
    ## What it does
    Finds `loss.data[0]`, also with a `.cpu()` or `.numpy()` in it. Off by default: select it to have it.

    ## Why it matters
    A loss has no dimensions since PyTorch 0.4, so that it can't be indexed: "invalid index of a 0-dim tensor. Use
    `tensor.item()`".

    ## Example
    ```python
    total += loss.data[0]
    ```

    ## Use instead
    ```python
    total += loss.item()
    ```

    ## Fix safety
    Safe where the tensor is known to have no dimensions, so that the line could only fail: it is the value of a
    loss of `torch.nn`, of `.mean()` or of `.sum()`. Unsafe where its `backward()` is called, which only works
    for a single number, but also for one in a list: `.item()` then gives a number and no tensor. Elsewhere
    `x.data[0]` may well be the first row of a batch, and is reported only where the name speaks of a loss.
    """

    code = "DF813"
    name = "scalar-index"
    summary = "`loss.data[0]` fails since PyTorch 0.5"
    default = False
    words = (b".data[",)
    MATCHES = (
        Changed(
            "import torch\nimport torch.nn.functional as F\n\nloss = F.nll_loss(cuda_net(x), y)\nprint('gpu', loss.data[0])\n",
            "import torch\nimport torch.nn.functional as F\n\nloss = F.nll_loss(cuda_net(x), y)\nprint('gpu', loss.item())\n",
        ),
        Changed(
            "import torch.nn as nn\n\ncriterion = nn.MSELoss().cuda()\ntensor = criterion(x.cuda(), y)\nn = tensor.data.cpu()[0] / 2\n",
            "import torch\nimport torch.nn as nn\n\n"
            'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "criterion = nn.MSELoss().to(device)\ntensor = criterion(x.to(device), y)\nn = tensor.item() / 2\n",
        ),
        Changed(
            "import torch\n\nerr = gan(tensor)\nerr.cuda().backward()\n\n\ndef run(tensor):\n"
            "    error = gan(tensor)\n    error.backward()\n    return error.data[0], tensor\n",
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "err = gan(tensor)\nerr.to(device).backward()\n\n\ndef run(tensor):\n"
            "    error = gan(tensor)\n    error.backward()\n    return error.item(), tensor\n",
            unsafe=True,
        ),
        Changed("import torch\n\nprint('cuda', self.loss_G.data[0])\n", None),
    )
    LEAVES = (
        "import torch\n\nfirst_tensor = batch.data[0]\n",
        "import torch\n\ntensor = loss.data[1]\n",
        "import pandas\n\nloss_cuda = loss[0]\n",
    )

    def _look(self, node: ast.stmt) -> Iterator[Finding]:
        for each in expressions(node):
            if isinstance(each, ast.Subscript) and not isinstance(
                self.facts.tree.parents.get(each), ast.Subscript
            ):
                yield from self._index(each)

    visit_Assign = visit_AnnAssign = visit_AugAssign = visit_Expr = visit_Return = _look
    visit_For = visit_While = visit_If = visit_With = visit_Assert = visit_Raise = _look
    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _look

    def _index(self, node: ast.Subscript) -> Iterator[Finding]:
        if not (
            isinstance(node.slice, ast.Constant) and node.slice.value == 0 and type(node.slice.value) is int
        ):
            return
        tensor = _tensor(node.value)
        if tensor is None or (
            self.facts.torch_name(node) is None and "torch" not in self.context.source.text
        ):
            return
        message = "a tensor without dimensions can't be indexed since PyTorch 0.5: use `.item()`"
        if self._scalar(tensor):
            yield self.finding(node, message, self._item(node, tensor))
        elif self._goes_back(tensor):
            fix = self._item(node, tensor)
            yield self.finding(node, message, Fix(fix.edits, Safety.UNSAFE))
        elif "loss" in (dotted(tensor) or "").rpartition(".")[2].lower():
            yield self.finding(node, f"{message}, if this is a single number")

    def _item(self, node: ast.Subscript, tensor: ast.expr) -> Fix:
        length = self.context.source.span(tensor)[1] - self.context.source.span(node)[0]
        return self.context.edit(node, lambda text: f"{text[:length]}.item()", DeviceExpr(""))

    def _scalar(self, node: ast.expr, depth: int = 4) -> bool:
        """Whether an expression is a tensor without dimensions."""
        if not depth:
            return False
        match node:
            case ast.Name() | ast.Attribute():
                values = [each.value for each in self.facts.bindings(node)]
                return bool(values) and all(
                    each is not None and self._scalar(each, depth - 1) for each in values
                )
            case ast.BinOp(left=left, right=right):
                sides = [each for each in (left, right) if not isinstance(each, ast.Constant)]
                return bool(sides) and all(self._scalar(each, depth - 1) for each in sides)
            case ast.Call(func=func, keywords=keywords):
                if any(
                    each.arg in ("reduction", "reduce", "dim", "axis", "keepdim", None) for each in keywords
                ):
                    return False
                name = self.facts.resolve(func) or ""
                if name.startswith("torch.nn.functional.") and name.endswith(("_loss", "entropy", "kl_div")):
                    return True
                if name in ("torch.mean", "torch.sum"):
                    return len(node.args) == 1
                if isinstance(func, ast.Attribute) and func.attr in _TO_SCALAR and not node.args and not name:
                    return True
                return self._criterion(func, depth)
        return False

    def _criterion(self, node: ast.expr, depth: int) -> bool:
        """Whether an expression is a loss of torch.nn that sums up or averages."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        return any(True for _ in self.facts.bindings(node)) and all(
            self._loss(each.value, node) for each in self.facts.bindings(node)
        )

    def _loss(self, node: ast.expr | None, itself: ast.expr) -> bool:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("cuda", "to")
        ):
            inner = node.func.value
            return ast.unparse(inner) == ast.unparse(itself) or self._loss(inner, itself)
        if not isinstance(node, ast.Call) or any(
            each.arg in ("reduction", "reduce", None) for each in node.keywords
        ):
            return False
        name = self.facts.resolve(node.func) or ""
        return name.startswith("torch.nn.") and name.endswith("Loss")

    def _goes_back(self, tensor: ast.expr) -> bool:
        """Whether `backward()` of the same name is called in the same function."""
        name = dotted(tensor)
        function = self.facts.tree.scope(tensor).node
        if name is None or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            return False
        return f"{name}.backward()" in ast.unparse(function)


def _tensor(node: ast.expr) -> ast.expr | None:
    """`x` of `x.data`, `x.data.cpu()`, `x.cpu().data.numpy()`; None without `.data`."""
    data = False
    while True:
        if isinstance(node, ast.Attribute) and node.attr == "data":
            data, node = True, node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _MOVES
            and not node.args
        ):
            node = node.func.value
        else:
            return node if data else None
