from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from devicefix.devices.arguments import device_argument, is_cuda_target, target_device
from devicefix.devices.choose import DeviceExpr
from devicefix.devices.tensors import expressions, is_variable
from devicefix.facts.values import index_or_none
from devicefix.model import Finding
from devicefix.rules.base import Changed, Rule

# What is the same bit for bit wherever it is made. torch.linspace is not: it rounds differently on a GPU.
_EXACT = ("zeros", "ones", "empty", "full", "eye")
# The tensor that is moved would be another one: a leaf of the graph, or one in pinned memory.
_OTHERWISE = {"device", "out", "pin_memory", "requires_grad", None}


class CreatedThenMoved(Rule):
    """
    ## What it does
    Finds a tensor that is made on the CPU only to be moved: `torch.zeros(n).cuda()`, and also
    `torch.zeros(n).to(device)`. Off by default: select it to have it.

    ## Why it matters
    The tensor is made twice, and copied from the CPU to the GPU in between, which makes both wait.

    ## Example
    ```python
    hidden = torch.zeros(2, size).cuda()
    steps = torch.arange(n).to(device)
    ```

    ## Use instead
    ```python
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    hidden = torch.zeros(2, size, device=device)
    steps = torch.arange(n, device=device)
    ```

    ## Fix safety
    Safe: only what is the same bit for bit wherever it is made (`zeros`, `ones`, `empty`, `full`, `eye`,
    `arange` of whole numbers, `tensor` of a literal). What draws random numbers stays, since another generator
    would draw others, and so do `linspace` and `arange` with a fraction, which round differently on a GPU. So
    does a tensor with `requires_grad=True`: the one that is moved is no leaf of the graph, the one that is
    made there would be.
    """

    code = "DF106"
    name = "created-then-moved"
    summary = "A tensor is made on the CPU only to be moved"
    default = False
    MATCHES = (
        Changed(
            "import torch\n\nx = torch.zeros(n).cuda()\n",
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "x = torch.zeros(n, device=device)\n",
        ),
        Changed(
            "import torch\n\nx = torch.full((2, n), 0.5, dtype=torch.half).cuda(1, non_blocking=True)\n",
            "import torch\n\n"
            'device1 = torch.device("cuda:1" if torch.cuda.is_available() else "cpu")\n\n'
            "x = torch.full((2, n), 0.5, dtype=torch.half, device=device1)\n",
        ),
        Changed(
            "import torch\n\n\ndef run(device, n):  # CPU or cuda\n"
            "    return torch.eye(n).to(device), [torch.arange(1, n).to(device=device) for _ in range(2)]\n",
            "import torch\n\n\ndef run(device, n):  # CPU or cuda\n"
            "    return torch.eye(n, device=device), [torch.arange(1, n, device=device) for _ in range(2)]\n",
        ),
        Changed(
            'import torch\n\nx = (torch.tensor([1.0, -2])\n     .to("cuda").half())\n',
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "x = (torch.tensor([1.0, -2], device=device).half())\n",
        ),
        Changed(
            'import torch\n\nx = f(torch.ones(\n    2,\n    3,\n).to(f"cuda:{rank}"))\n',
            "import torch\n\nx = f(torch.ones(\n    2,\n    3,\n"
            '    device=f"cuda:{rank}" if torch.cuda.is_available() else "cpu",\n))\n',
        ),
        Changed(
            "import torch\nfrom torch.autograd import Variable\n\nh = Variable(torch.zeros(2)).cuda().half()\n",
            "import torch\nfrom torch.autograd import Variable\n\n"
            'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "h = torch.zeros(2, device=device).half()\n",  # with the rule for `Variable`
        ),
    )
    LEAVES = (
        "import torch\n\nx = torch.randn(n).cuda()\ny = torch.rand(2).to(device)\nz = torch.randperm(n).cuda()\n",
        "import torch\n\nx = torch.linspace(0, 1, n).cuda()\ny = torch.arange(0, 1, 0.1).cuda()\n",
        "import torch\n\nx = torch.zeros(n).half().cuda()\ny = torch.empty(n).normal_().cuda()\n",
        "import torch\n\nw = torch.zeros(n, requires_grad=True).cuda()\np = torch.zeros(n, pin_memory=True).cuda()\n",
        "import torch\n\nx = torch.zeros_like(y).cuda()\nz = torch.tensor(array).cuda()\n",
        'import torch\n\nx = torch.zeros(n).to(torch.half)\ny = torch.zeros(n).to("cpu")\nz = torch.zeros(n).to(other)\n',
        "import torch\n\nx = torch.zeros(n).cuda() if torch.cuda.is_available() else torch.zeros(n)\n",
        "import torch\n\nx = torch.zeros(n).cuda(gpu)\n",
        "import torch\n\nx = (torch.zeros(n)  # on a GPU\n     .cuda())\n",
    )

    # At the statement, before the rules for `.cuda()` and `.to()` get to see the call in it.
    def _look(self, node: ast.stmt) -> Iterator[Finding]:
        for each in expressions(node):
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
                made = self._made(each.func.value)
                if made is not None and not self._commented(each, made):
                    yield from self._moved(each)

    visit_Assign = visit_AnnAssign = visit_AugAssign = visit_Expr = visit_Return = _look
    visit_For = visit_While = visit_If = visit_With = visit_Assert = visit_Raise = _look
    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _look

    def _moved(self, node: ast.Call) -> Iterator[Finding]:
        assert isinstance(node.func, ast.Attribute)
        target = device_argument(node)
        if len(node.args) > 2 or any(each.arg not in ("device", "non_blocking") for each in node.keywords):
            return
        if any(isinstance(each, ast.Starred) for each in node.args):
            return
        use = None
        if node.func.attr == "cuda" and not self.facts.is_guarded(node):
            use = target_device(self.context, node, target)
            if use is None:
                return
            self.context.mark_handled(node)
        elif node.func.attr != "to" or len(node.args) > 1 or not is_cuda_target(self.facts, target):
            return
        made = "this tensor is made on the CPU and then moved: make it where it is wanted, by `device=`"
        fix = self.context.edit(node, _made_there(use.text if use else None), use or DeviceExpr(""))
        yield self.finding(node, made, fix)

    def _made(self, node: ast.expr) -> ast.Call | None:
        """The call that makes a tensor, if it may do so anywhere."""
        if not isinstance(node, ast.Call) or "cuda" in self.context.source.code(node):
            return None
        if is_variable(self.facts, node) and len(node.args) == 1 and not node.keywords:
            return self._made(node.args[0]) if not is_variable(self.facts, node.args[0]) else None
        name = (self.facts.resolve(node.func) or "").removeprefix("torch.")
        if any(each.arg in _OTHERWISE for each in node.keywords) or not node.args:
            return None
        exact = name in _EXACT or (
            # The values are start + i * step, whatever the end.
            name == "arange"
            and (len(node.args) == 1 or all(map(self._whole, (node.args[0], *node.args[2:3]))))
        )
        return node if exact or (name == "tensor" and _literal(node.args[0])) else None

    def _whole(self, node: ast.expr) -> bool:
        """Whether an expression is a whole number for sure."""
        match node:
            case ast.Constant(value=value):
                return type(value) is int
            case ast.UnaryOp(operand=operand):
                return self._whole(operand)
            case ast.BinOp(left=left, right=right, op=op):
                return not isinstance(op, ast.Div) and self._whole(left) and self._whole(right)
            case (
                ast.Call(func=ast.Attribute(attr="size" | "numel" | "dim"))
                | ast.Call(func=ast.Name(id="len" | "int"))
            ):
                return True
            case ast.Subscript(value=ast.Attribute(attr="shape")):
                return True
        return index_or_none(self.facts, node)

    def _commented(self, node: ast.Call, made: ast.Call) -> bool:
        """Whether a comment would be lost."""
        _, end = self.context.source.span(made)
        return "#" in self.context.source.text[end : self.context.source.span(node)[1]]


def _literal(node: ast.expr) -> bool:
    """Whether an expression is a number, or a list of whatever."""
    if isinstance(node, ast.UnaryOp):
        return _literal(node.operand)
    return isinstance(node, (ast.List, ast.Tuple)) or (
        isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, complex))
    )


def _made_there(device: str | None) -> Callable[[str], str]:
    """`torch.zeros(n).to(there)` as `torch.zeros(n, device=there)`; `device` takes the place of `there`."""

    def new(text: str) -> str:
        import libcst as cst

        from devicefix.rewrite.edits import on_call, with_keyword

        there = [device] if device else []

        def inner(call: cst.Call) -> cst.Call:
            if not there:
                there.append(cst.Module([]).code_for_node(call.args[0].value))
            assert isinstance(call.func, cst.Attribute) and isinstance(call.func.value, cst.Call)
            return call.func.value

        def variable(call: cst.Call) -> cst.Call:
            made = call.args[0].value
            changed = with_keyword("device", there[0])(cst.Module([]).code_for_node(made))
            argument = call.args[0].with_changes(value=cst.parse_expression(changed))
            return call.with_changes(args=[argument, *call.args[1:]])

        text = on_call(inner)(text)
        name = text.partition("(")[0].strip()
        if name.rpartition(".")[2].strip() == "Variable":
            return on_call(variable)(text)
        return with_keyword("device", there[0])(text)

    return new
