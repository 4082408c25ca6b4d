from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.choose import DeviceExpr
from devicefix.devices.tensors import expressions
from devicefix.facts.scopes import dotted
from devicefix.model import Finding, Fix
from devicefix.rules.base import Example, Rule

_MOVES = {"cpu", "detach", "numpy"}
_TO_SCALAR = {"mean", "sum", "prod", "norm"}


class ScalarIndex(Rule):
    """
    ## What it does
    Finds `loss.data[0]`, including variants with `.cpu()` or `.numpy()`. This rule is off by default.

    ## Why it matters
    In PyTorch 0.4 and later, a loss is a 0-dim tensor. Indexing a 0-dim tensor raises an error in PyTorch 0.5 and
    later: "invalid index of a 0-dim tensor. Use `tensor.item()`".

    ## Example
    ```python
    total += loss.data[0]
    ```

    ## Use instead
    ```python
    total += loss.item()
    ```

    ## Fix safety
    The fix is safe if the tensor is the result of a `torch.nn` loss, `.mean()` or `.sum()`: the tensor is then 0-dim,
    so the original line always fails. The fix is unsafe if the same function calls the tensor's `backward()` method:
    the tensor then has a single element, but it may have a dimension. In that case, indexing returns a tensor, whereas
    `.item()` returns a number. For any other tensor, `x.data[0]` may be the first row of a batch, so the rule reports
    it only if the tensor's name contains "loss", and offers no fix.
    """

    code = "DF813"
    name = "scalar-index"
    summary = "`loss.data[0]` raises an error in PyTorch 0.5 and later"
    default = False
    words = (b".data[",)
    common_words = (b".data",)
    INVALID = (
        Example(
            "a loss of torch.nn.functional",
            before="""
                import torch
                import torch.nn.functional as F

                loss = F.nll_loss(cuda_net(x), y)
                print('gpu', loss.data[0])
            """,
            after="""
                import torch
                import torch.nn.functional as F

                loss = F.nll_loss(cuda_net(x), y)
                print('gpu', loss.item())
            """,
        ),
        Example(
            "a loss of torch.nn, copied to the CPU",
            before="""
                import torch.nn as nn

                criterion = nn.MSELoss().cuda()
                tensor = criterion(x.cuda(), y)
                n = tensor.data.cpu()[0] / 2
            """,
            after="""
                import torch
                import torch.nn as nn

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                criterion = nn.MSELoss().to(device)
                tensor = criterion(x.to(device), y)
                n = tensor.item() / 2
            """,
        ),
        Example(
            "a tensor whose backward is called",
            before="""
                import torch

                err = gan(tensor)
                err.cuda().backward()


                def run(tensor):
                    error = gan(tensor)
                    error.backward()
                    return error.data[0], tensor
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                err = gan(tensor)
                err.to(device).backward()


                def run(tensor):
                    error = gan(tensor)
                    error.backward()
                    return error.item(), tensor
            """,
            unsafe=True,
        ),
        Example(
            "a loss that is not known",
            before="""
                import torch

                print('cuda', self.loss_G.data[0])
            """,
        ),
    )
    VALID = (
        Example(
            "a tensor that may have dimensions",
            """
                import torch

                first_tensor = batch.data[0]
            """,
        ),
        Example(
            "another index",
            """
                import torch

                tensor = loss.data[1]
            """,
        ),
        Example(
            "no data attribute",
            """
                import pandas

                loss_cuda = loss[0]
            """,
        ),
    )

    def visit_statement(self, node: ast.stmt) -> Iterator[Finding]:
        for expression in expressions(node):
            if isinstance(expression, ast.Subscript) and not isinstance(
                self.facts.tree.parents.get(expression), ast.Subscript
            ):
                yield from self._index(expression)

    def _index(self, node: ast.Subscript) -> Iterator[Finding]:
        if not (
            isinstance(node.slice, ast.Constant) and node.slice.value == 0 and type(node.slice.value) is int
        ):
            return
        tensor = _tensor(node.value)
        if tensor is None or (self.facts.torch_name(node) is None and not self.context.source.holds("torch")):
            return
        message = "indexing a 0-dim tensor raises an error in PyTorch 0.5 and later; use `.item()`"
        if self._scalar(tensor):
            yield self.finding(node, message, self._item(node, tensor))
        elif self._goes_back(tensor):
            fix = self._item(node, tensor)
            yield self.finding(node, message, Fix(fix.edits, "the tensor may have more than one number"))
        elif "loss" in (dotted(tensor) or "").rpartition(".")[2].lower():
            yield self.finding(node, f"{message} if this is a single number")

    def _item(self, node: ast.Subscript, tensor: ast.expr) -> Fix:
        length = self.context.source.span(tensor)[1] - self.context.source.span(node)[0]
        return self.context.edit(node, lambda text: f"{text[:length]}.item()", DeviceExpr(""))

    def _scalar(self, node: ast.expr, depth: int = 4) -> bool:
        """Return whether an expression is a tensor without dimensions."""
        if not depth:
            return False
        match node:
            case ast.Name() | ast.Attribute():
                values = [binding.value for binding in self.facts.bindings(node)]
                return bool(values) and all(
                    value is not None and self._scalar(value, depth - 1) for value in values
                )
            case ast.BinOp(left=left, right=right):
                sides = [side for side in (left, right) if not isinstance(side, ast.Constant)]
                return bool(sides) and all(self._scalar(side, depth - 1) for side in sides)
            case ast.Call():
                return self._returns_scalar(node)
        return False

    def _returns_scalar(self, call: ast.Call) -> bool:
        """Return whether a call returns a tensor without dimensions."""
        keeps_dimensions = ("reduction", "reduce", "dim", "axis", "keepdim", None)
        if any(keyword.arg in keeps_dimensions for keyword in call.keywords):
            return False
        func = call.func
        name = self.facts.resolve(func) or ""
        if name.startswith("torch.nn.functional.") and name.endswith(("_loss", "entropy", "kl_div")):
            return True
        if name in ("torch.mean", "torch.sum"):
            return len(call.args) == 1
        if isinstance(func, ast.Attribute) and func.attr in _TO_SCALAR and not call.args and not name:
            return True
        return self._criterion(func)

    def _criterion(self, node: ast.expr) -> bool:
        """Return whether an expression is a loss of torch.nn that sums or averages."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        return any(True for _ in self.facts.bindings(node)) and all(
            self._loss(binding.value, node) for binding in self.facts.bindings(node)
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
            keyword.arg in ("reduction", "reduce", None) for keyword in node.keywords
        ):
            return False
        name = self.facts.resolve(node.func) or ""
        return name.startswith("torch.nn.") and name.endswith("Loss")

    def _goes_back(self, tensor: ast.expr) -> bool:
        """Return whether the same function calls `backward()` of the tensor."""
        name = dotted(tensor)
        function = self.facts.tree.scope(tensor).node
        if name is None or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            return False
        return f"{name}.backward()" in ast.unparse(function)


def _tensor(node: ast.expr) -> ast.expr | None:
    """Return `x` of `x.data`, `x.data.cpu()` or `x.cpu().data.numpy()`, or None without `.data`."""
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
