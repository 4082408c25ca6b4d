from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.choose import DeviceExpr
from devicefix.devices.tensors import KEEPERS, MAKERS, expressions, is_variable
from devicefix.facts import Facts
from devicefix.facts.values import last_name
from devicefix.files.text import parse
from devicefix.model import Finding, Fix
from devicefix.rewrite.calls import first_argument
from devicefix.rules.base import Example, Rule


class LegacyVariable(Rule):
    """
    ## What it does
    Finds calls to `torch.autograd.Variable`. This rule is off by default.

    ## Why it matters
    In PyTorch 0.4 and later, tensors do everything that a `Variable` did. The call still has an effect, though: like
    `x.detach()`, it returns a tensor that shares its data with `x` but is detached from the autograd graph.

    ## Example
    ```python
    noise = Variable(torch.zeros(n).cuda())
    fake = Variable(generator(noise))
    ```

    ## Use instead
    ```python
    noise = torch.zeros(n).cuda()
    fake = generator(noise).detach()
    ```

    Replace `Variable(x, requires_grad=True)` with `x.requires_grad_()`.

    ## Fix safety
    The fix is safe: it applies only to tensors without an autograd history (new tensors, tensors from a data loader,
    `x.data` and `x.detach()`). There is no fix for other tensors or for calls with keyword arguments: use `x` or
    `x.detach()`, whichever you intended. The fix keeps the import of `Variable`.
    """

    code = "DF811"
    name = "legacy-variable"
    summary = "`Variable(...)` has had no purpose since PyTorch 0.4"
    default = False
    words = (b"Variable(",)
    INVALID = (
        Example(
            "a tensor that has just been made",
            before="""
                import torch
                from torch.autograd import Variable

                h = Variable(torch.FloatTensor(3).normal_())  # no cuda
            """,
            after="""
                import torch
                from torch.autograd import Variable

                h = torch.FloatTensor(3).normal_()  # no cuda
            """,
        ),
        Example(
            "batches of a data loader",
            before="""
                import torch
                from torch.autograd import Variable

                for x, target in train_loader:
                    x, target = Variable(x.cuda()), Variable(target).cuda()
            """,
            after="""
                import torch
                from torch.autograd import Variable

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                for x, target in train_loader:
                    x, target = x.to(device), target.to(device)
            """,
        ),
        Example(
            "over several lines",
            before="""
                import torch

                with torch.no_grad():
                    y = net(torch.autograd.Variable(
                        torch.randn(2)
                        .float().cuda()))
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                with torch.no_grad():
                    y = net((torch.randn(2)
                        .float().to(device)))
            """,
        ),
        Example(
            "a tensor that may have a history",
            before="""
                from torch.autograd import Variable

                x = Variable(make_tensor(3))  # cuda or not
            """,
        ),
        Example(
            "with requires_grad",
            before="""
                import torch
                from torch.autograd import Variable

                x = Variable(torch.tensor(3.0), requires_grad=True)  # no cuda
            """,
        ),
        Example(
            "a tensor that has another name",
            before="""
                import torch
                from torch.autograd import Variable

                tensor = torch.zeros(3)  # no cuda
                other_tensor = Variable(tensor)
                other_tensor.requires_grad = True
            """,
        ),
    )
    VALID = (
        Example(
            "Variable of TensorFlow",
            """
                import tensorflow as tf

                x = tf.Variable(cuda)
            """,
        ),
        Example(
            "an isinstance test",
            """
                from torch.autograd import Variable

                assert isinstance(device_tensor, Variable)
            """,
        ),
        Example(
            "Variable of SymPy",
            """
                import torch
                from sympy import Variable

                x = Variable(torch.FloatTensor(3))
            """,
        ),
    )

    def visit_statement(self, node: ast.stmt) -> Iterator[Finding]:
        for expression in expressions(node):
            if is_variable(self.facts, expression):
                assert isinstance(expression, ast.Call)
                yield self._found(expression)

    def _found(self, node: ast.Call) -> Finding:
        if node.keywords or len(node.args) != 1 or isinstance(node.args[0], ast.Starred):
            return self.finding(
                node,
                "`Variable(x, ...)` has had no purpose since PyTorch 0.4; use `x.detach()`, and `requires_grad_()` if needed",
            )
        only = node.args[0]
        if self._without_history(only) and "#" not in self.context.source.code(node):
            fix = self._unwrapped(node)
            return self.finding(node, "`Variable(x)` has had no purpose since PyTorch 0.4; use `x`", fix)
        return self.finding(
            node,
            "`Variable(x)` has had no purpose since PyTorch 0.4; use `x`, or `x.detach()` if `x` has an autograd history",
        )

    def _unwrapped(self, node: ast.Call) -> Fix:
        parent = self.facts.tree.parents.get(node)
        roomy = isinstance(parent, (ast.Assign, ast.Expr, ast.Return, ast.keyword, ast.Tuple, ast.List)) or (
            isinstance(parent, ast.Call) and parent.func is not node
        )

        def new(text: str) -> str:
            text = first_argument(text)
            only = parse(f"({text}\n)").body[0]
            assert isinstance(only, ast.Expr)
            tight = isinstance(only.value, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
            return text if "\n" not in text and (tight or roomy) else f"({text})"

        return self.context.edit(node, new, DeviceExpr(""))

    def _without_history(self, node: ast.expr, depth: int = 8) -> bool:
        """Return whether a tensor certainly has no history, and no other name."""
        match node:
            case ast.Attribute(attr="data") | ast.Call(func=ast.Attribute(attr="detach")):
                return True
            case ast.Subscript(value=value):
                return (
                    depth > 0 and not isinstance(value, ast.Name) and self._without_history(value, depth - 1)
                )
            case ast.Name():
                return self._rebound(node) and from_loader(self.facts, node)
            case ast.Call(func=func, keywords=keywords):
                if any(keyword.arg == "requires_grad" for keyword in keywords):
                    return False
                name = self.facts.resolve(func) or ""
                if name.removeprefix("torch.").removeprefix("cuda.") in MAKERS and name.startswith("torch."):
                    return True
                if isinstance(func, ast.Attribute) and func.attr in KEEPERS and depth:
                    return self._without_history(func.value, depth - 1)
        return False

    def _rebound(self, node: ast.Name) -> bool:
        """Return whether the result is assigned to the same name: `x = Variable(x)`, also in a tuple."""
        for child, parent in self.facts.tree.ancestors(node):
            if isinstance(parent, ast.Assign):
                bindings = (binding for binding in self.facts.bindings(node) if binding.node is parent)
                return any(
                    binding.value is not None and child in (binding.value, parent.value)
                    for binding in bindings
                )
            if isinstance(parent, ast.stmt):
                break
        return False


def from_loader(facts: Facts, node: ast.Name) -> bool:
    """Return whether a name is only bound by a loop over a data loader, and to conversions of itself."""
    bindings = facts.bindings(node)
    return bool(bindings) and all(
        _loads(binding.node) or (binding.value is not None and _itself(facts, binding.value, node.id))
        for binding in bindings
    )


def _loads(node: ast.AST) -> bool:
    if not isinstance(node, (ast.For, ast.comprehension)):
        return False
    over = node.iter
    while isinstance(over, ast.Call) and over.args and last_name(over.func) in ("enumerate", "tqdm", "iter"):
        over = over.args[0]
    return "loader" in last_name(over).lower()


def _itself(facts: Facts, node: ast.expr, name: str) -> bool:
    """Return whether an expression is a conversion of a name: `x`, `x.cuda()`, `Variable(x)`."""
    match node:
        case ast.Name(id=same):
            return same == name
        case ast.Call(args=[only]) if is_variable(facts, node):
            return _itself(facts, only, name)
        case ast.Call(func=ast.Attribute(attr=attr, value=value)):
            return attr in KEEPERS and _itself(facts, value, name)
    return False
