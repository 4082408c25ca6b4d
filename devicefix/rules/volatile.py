from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.tensors import expressions, is_variable
from devicefix.model import Finding
from devicefix.rules.base import Changed, Rule


class Volatile(Rule):
    """
    ## What it does
    Finds `volatile=True` and `x.volatile = True`. Off by default: select it to have it.

    ## Why it matters
    Since PyTorch 0.4 it does nothing but warn. Code that relied on it now keeps the graph of every step of its
    evaluation, and may run out of memory.

    ## Example
    ```python
    x = Variable(x, volatile=True)
    y = net(x)
    ```

    ## Use instead
    ```python
    with torch.no_grad():
        y = net(x)
    ```

    ## Fix safety
    There is no fix: which statements belong under `torch.no_grad()` is for you to say.
    """

    code = "DF812"
    name = "volatile"
    summary = "`volatile=True` has done nothing since PyTorch 0.4"
    default = False
    words = (b"volatile",)
    MATCHES = (
        Changed("from torch.autograd import Variable\n\nx = Variable(cuda_tensor, volatile=True)\n", None),
        Changed(
            "from torch.autograd import Variable\n\nx = Variable(cuda_tensor, volatile=not training)\n", None
        ),
        Changed("import torch\n\ncuda_tensor.volatile = True\n", None),
    )
    LEAVES = (
        "from torch.autograd import Variable\n\nx = Variable(cuda_tensor, volatile=False)\n",
        "stock = Stock(cuda, volatile=True)\n",
    )

    def _look(self, node: ast.stmt) -> Iterator[Finding]:
        for each in expressions(node):
            if isinstance(each, ast.Call) and is_variable(self.facts, each):
                for keyword in each.keywords:
                    if keyword.arg == "volatile" and not _false(keyword.value):
                        yield self._found(keyword.value)

    visit_AnnAssign = visit_AugAssign = visit_Expr = visit_Return = _look
    visit_For = visit_While = visit_If = visit_With = visit_Assert = visit_Raise = _look
    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _look

    def visit_Assign(self, node: ast.Assign) -> Iterator[Finding]:
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == "volatile" and not _false(node.value):
            if self.facts.torch_name(node) is not None:
                yield self._found(target)
        yield from self._look(node)

    def _found(self, node: ast.expr) -> Finding:
        return self.finding(
            node, "`volatile` does nothing since PyTorch 0.4: compute under `with torch.no_grad():`"
        )


def _false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value
