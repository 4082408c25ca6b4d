from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.split import expressions, is_variable
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule


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
    common_words = (b"variable(",)
    INVALID = (
        Example(
            "the keyword",
            before="""
                from torch.autograd import Variable

                x = Variable(cuda_tensor, volatile=True)
            """,
        ),
        Example(
            "the keyword with a condition",
            before="""
                from torch.autograd import Variable

                x = Variable(cuda_tensor, volatile=not training)
            """,
        ),
        Example(
            "the attribute",
            before="""
                import torch

                cuda_tensor.volatile = True
            """,
        ),
    )
    VALID = (
        Example(
            "the keyword with False",
            """
                from torch.autograd import Variable

                x = Variable(cuda_tensor, volatile=False)
            """,
        ),
        Example(
            "a function that is not Variable",
            """
                stock = Stock(cuda, volatile=True)
            """,
        ),
    )

    def visit_statement(self, node: ast.stmt) -> Iterator[Finding]:
        for each in expressions(node):
            if isinstance(each, ast.Call) and is_variable(self.facts, each):
                for keyword in each.keywords:
                    if keyword.arg == "volatile" and not _false(keyword.value):
                        yield self._found(keyword.value)

    def visit_Assign(self, node: ast.Assign) -> Iterator[Finding]:
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == "volatile" and not _false(node.value):
            if self.facts.torch_name(node) is not None:
                yield self._found(target)

    def _found(self, node: ast.expr) -> Finding:
        return self.finding(
            node, "`volatile` does nothing since PyTorch 0.4: compute under `with torch.no_grad():`"
        )


def _false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value
