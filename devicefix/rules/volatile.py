from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.tensors import expressions, is_variable
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule


class Volatile(Rule):
    """
    ## What it does
    Finds `volatile=True` and `x.volatile = True`. This rule is off by default.

    ## Why it matters
    In PyTorch 0.4 and later, the only effect of `volatile` is a warning. Code that relies on it now builds an autograd
    graph in every evaluation step and may run out of memory.

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
    There is no fix: you have to decide which statements belong under `torch.no_grad()`.
    """

    code = "DF812"
    name = "volatile"
    summary = "`volatile=True` has had no effect since PyTorch 0.4"
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
        for expression in expressions(node):
            if isinstance(expression, ast.Call) and is_variable(self.facts, expression):
                for keyword in expression.keywords:
                    if keyword.arg == "volatile" and not _false(keyword.value):
                        yield self._found(keyword.value)

    def visit_Assign(self, node: ast.Assign) -> Iterator[Finding]:
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == "volatile" and not _false(node.value):
            if self.facts.torch_name(node) is not None:
                yield self._found(target)

    def _found(self, node: ast.expr) -> Finding:
        return self.finding(
            node, "`volatile` has had no effect since PyTorch 0.4; use `with torch.no_grad():`"
        )


def _false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value
