from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.choose import DeviceExpr
from devicefix.devices.tensors import KEEPERS, MAKERS, expressions, is_variable
from devicefix.facts import Facts
from devicefix.facts.values import last_name
from devicefix.model import Finding, Fix
from devicefix.rewrite.edits import on_call
from devicefix.rules.base import Changed, Rule


class LegacyVariable(Rule):
    """
    ## What it does
    Finds `Variable(x)`. Off by default: select it to have it.

    ## Why it matters
    Since PyTorch 0.4 every tensor is what a `Variable` was. The call is not nothing, though: it gives a tensor
    that shares the data of `x` and is cut off from the graph that made it, as `x.detach()` does.

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

    and `x.requires_grad_()` for `Variable(x, requires_grad=True)`.

    ## Fix safety
    Safe, and only where the tensor has no history that could be cut off: it has just been made, or read from a
    data loader, or is `x.data` or `x.detach()`. Elsewhere, and where there are keywords, there is no fix: write
    `x` or `x.detach()`, whichever is meant. The import of `Variable` stays.
    """

    code = "DF811"
    name = "legacy-variable"
    summary = "`Variable(...)` has had no purpose since PyTorch 0.4"
    default = False
    words = (b"Variable(",)
    MATCHES = (
        Changed(
            "import torch\nfrom torch.autograd import Variable\n\nh = Variable(torch.FloatTensor(3).normal_())  # no cuda\n",
            "import torch\nfrom torch.autograd import Variable\n\nh = torch.FloatTensor(3).normal_()  # no cuda\n",
        ),
        Changed(
            "import torch\nfrom torch.autograd import Variable\n\n"
            "for x, target in train_loader:\n    x, target = Variable(x.cuda()), Variable(target).cuda()\n",
            "import torch\nfrom torch.autograd import Variable\n\n"
            'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "for x, target in train_loader:\n    x, target = x.to(device), target.to(device)\n",
        ),
        Changed(
            "import torch\n\nwith torch.no_grad():\n    y = net(torch.autograd.Variable(\n"
            "        torch.randn(2)\n        .float().cuda()))\n",
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "with torch.no_grad():\n    y = net((torch.randn(2)\n        .float().to(device)))\n",
        ),
        Changed("from torch.autograd import Variable\n\nx = Variable(make_tensor(3))  # cuda or not\n", None),
        Changed(
            "import torch\nfrom torch.autograd import Variable\n\nx = Variable(torch.tensor(3.0), requires_grad=True)  # no cuda\n",
            None,
        ),
        Changed(
            "import torch\nfrom torch.autograd import Variable\n\n"
            "tensor = torch.zeros(3)  # no cuda\nother_tensor = Variable(tensor)\nother_tensor.requires_grad = True\n",
            None,
        ),
    )
    LEAVES = (
        "import tensorflow as tf\n\nx = tf.Variable(cuda)\n",
        "from torch.autograd import Variable\n\nassert isinstance(device_tensor, Variable)\n",
        "import torch\nfrom sympy import Variable\n\nx = Variable(torch.FloatTensor(3))\n",
    )

    def _look(self, node: ast.stmt) -> Iterator[Finding]:
        for each in expressions(node):
            if is_variable(self.facts, each):
                assert isinstance(each, ast.Call)
                yield self._found(each)

    visit_Assign = visit_AnnAssign = visit_AugAssign = visit_Expr = visit_Return = _look
    visit_For = visit_While = visit_If = visit_With = visit_Assert = visit_Raise = _look
    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _look

    def _found(self, node: ast.Call) -> Finding:
        if node.keywords or len(node.args) != 1 or isinstance(node.args[0], ast.Starred):
            return self.finding(
                node,
                "`Variable(x, ...)` is the old way of `x.detach()`, and `x.requires_grad_()` where that is asked for",
            )
        only = node.args[0]
        if self._without_history(only) and "#" not in self.context.source.code(node):
            fix = self._unwrapped(node, only)
            return self.finding(node, "`Variable(x)` is `x` since PyTorch 0.4", fix)
        return self.finding(
            node, "`Variable(x)` is the old way of `x`, or of `x.detach()` if `x` has a history"
        )

    def _unwrapped(self, node: ast.Call, only: ast.expr) -> Fix:
        parent = self.facts.tree.parents.get(node)
        roomy = isinstance(parent, (ast.Assign, ast.Expr, ast.Return, ast.keyword, ast.Tuple, ast.List)) or (
            isinstance(parent, ast.Call) and parent.func is not node
        )

        def new(text: str) -> str:
            import libcst as cst

            text = on_call(lambda call: call.args[0].value)(text)  # type: ignore[arg-type,return-value]
            tight = isinstance(
                cst.parse_expression(f"({text}\n)"), (cst.Name, cst.Attribute, cst.Call, cst.Subscript)
            )
            return text if "\n" not in text and (tight or roomy) else f"({text})"

        return self.context.edit(node, new, DeviceExpr(""))

    def _without_history(self, node: ast.expr, depth: int = 8) -> bool:
        """Whether a tensor has no history for sure, and nobody else a name for it."""
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
                if any(each.arg == "requires_grad" for each in keywords):
                    return False
                name = self.facts.resolve(func) or ""
                if name.removeprefix("torch.").removeprefix("cuda.") in MAKERS and name.startswith("torch."):
                    return True
                if isinstance(func, ast.Attribute) and func.attr in KEEPERS and depth:
                    return self._without_history(func.value, depth - 1)
        return False

    def _rebound(self, node: ast.Name) -> bool:
        """Whether what becomes of a name takes its place: `x = Variable(x)`, also among others."""
        for child, parent in self.facts.tree.ancestors(node):
            if isinstance(parent, ast.Assign):
                bindings = (each for each in self.facts.bindings(node) if each.node is parent)
                return any(
                    each.value is not None and child in (each.value, parent.value) for each in bindings
                )
            if isinstance(parent, ast.stmt):
                break
        return False


def from_loader(facts: Facts, node: ast.Name) -> bool:
    """Whether a name is bound by a loop over a data loader, and to nothing else but itself in other forms."""
    bindings = facts.bindings(node)
    return bool(bindings) and all(
        _loads(each.node) or (each.value is not None and _itself(facts, each.value, node.id))
        for each in bindings
    )


def _loads(node: ast.AST) -> bool:
    if not isinstance(node, (ast.For, ast.comprehension)):
        return False
    over = node.iter
    while isinstance(over, ast.Call) and over.args and last_name(over.func) in ("enumerate", "tqdm", "iter"):
        over = over.args[0]
    return "loader" in last_name(over).lower()


def _itself(facts: Facts, node: ast.expr, name: str) -> bool:
    """`x`, `x.cuda()`, `Variable(x)` and the like."""
    match node:
        case ast.Name(id=same):
            return same == name
        case ast.Call(args=[only]) if is_variable(facts, node):
            return _itself(facts, only, name)
        case ast.Call(func=ast.Attribute(attr=attr, value=value)):
            return attr in KEEPERS and _itself(facts, value, name)
    return False
