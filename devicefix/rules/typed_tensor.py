from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.devices.choose import DeviceExpr
from devicefix.facts import Facts
from devicefix.facts.values import last_name
from devicefix.model import Finding, Fix
from devicefix.rules.base import Changed, Rule

_TYPE = re.compile(r"torch\.cuda\.((?:sparse\.)?(\w*)Tensor)\Z")
# https://docs.pytorch.org/docs/stable/tensors.html: what the legacy types are called as dtypes.
DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Byte": "uint8",
    "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64", "Bool": "bool",
}  # fmt: skip


class TypedTensor(Rule):
    """
    ## What it does
    Finds the tensor types of CUDA, `torch.cuda.FloatTensor` and its kin: called to make a tensor, handed
    to `.type(...)`, or kept in a variable.

    ## Why it matters
    Without CUDA these types can neither make a tensor nor be converted to: "type torch.cuda.FloatTensor
    not available".

    ## Example
    ```python
    noise = torch.cuda.FloatTensor(batch.size(0), 100).normal_()
    weights = torch.cuda.FloatTensor([0.3, 0.7])
    dtype = torch.cuda.FloatTensor
    ```

    ## Use instead
    ```python
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    noise = torch.empty(batch.size(0), 100, dtype=torch.float32, device=device).normal_()
    weights = torch.tensor([0.3, 0.7], dtype=torch.float32, device=device)
    dtype = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
    ```

    ## Fix safety
    Safe. Sizes stay sizes, data stays data, and random numbers are drawn where they were drawn. Where the
    argument may be either, the type is chosen and the call kept.
    """

    code = "DF301"
    name = "typed-tensor"
    summary = "A tensor type of CUDA, such as `torch.cuda.FloatTensor`"
    MATCHES = (
        Changed(
            "import torch\n\nz = torch.cuda.HalfTensor(x.size(0), n, x.size(2)).normal_()\n",
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "z = torch.empty(x.size(0), n, x.size(2), dtype=torch.float16, device=device).normal_()\n",
        ),
        Changed(
            "import torch\n\nw = torch.cuda.FloatTensor([0.3, 0.7])\n",
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "w = torch.tensor([0.3, 0.7], dtype=torch.float32, device=device)\n",
        ),
        Changed(
            "import torch\n\nw = torch.cuda.FloatTensor(weights)\n",
            "import torch\n\n"
            "w = (torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor)(weights)\n",
        ),
        Changed(
            "import torch\n\ny = x.type(torch.cuda.LongTensor)\n",
            "import torch\n\ny = x.type(torch.cuda.LongTensor if torch.cuda.is_available() else torch.LongTensor)\n",
        ),
        Changed(
            "import torch.cuda as tc\n\ndtype = tc.FloatTensor\n",
            "import torch\nimport torch.cuda as tc\n\n"
            "dtype = tc.FloatTensor if torch.cuda.is_available() else torch.FloatTensor\n",
        ),
    )
    LEAVES = (
        "import torch\n\n\ndef f(x: torch.cuda.FloatTensor) -> torch.cuda.FloatTensor:\n    return x\n",
        "import torch\n\nops = {torch.FloatTensor: a, torch.cuda.FloatTensor: b}\n",
        "import torch\n\nFLOATS = (torch.FloatTensor, torch.cuda.FloatTensor)\n",
        "import torch\n\nif isinstance(x, torch.cuda.FloatTensor):\n    y = f(x.cuda())\n",
        "import torch\n\nT = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor\n",
        "import torch\n\nx = torch.FloatTensor(3)\n",
        "import torch\n\ny = x.type(torch.cuda.FloatTensor) if torch.cuda.is_available() else x\n",
    )

    def visit_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        if isinstance(node.ctx, ast.Load):
            yield from self._look(node)

    def visit_Name(self, node: ast.Name) -> Iterator[Finding]:
        if isinstance(node.ctx, ast.Load) and node.id.endswith("Tensor"):
            yield from self._look(node)

    def _look(self, node: ast.Attribute | ast.Name) -> Iterator[Finding]:
        kind = cuda_type(self.facts, node)
        if kind is None or self._aliased(node) or self.facts.is_guarded(node) or self._asked_for(node, kind):
            return
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Call) and parent.func is node and parent.keywords:
            yield self.finding(node, f"`torch.cuda.{kind}` needs CUDA: use `torch.empty` or `torch.tensor`")
            return
        fix = None
        if isinstance(parent, ast.Call) and parent.func is node:
            fix = self._constructed(parent, kind)
        torch = self.devices.torch(node)
        fix = fix or self._with_torch(self.context.when_cuda(node, f"{torch.text}.{kind}"), torch)
        yield self.finding(node, f"`torch.cuda.{kind}` needs CUDA", fix)

    def _aliased(self, node: ast.Attribute | ast.Name) -> bool:
        """A variable that holds the type is not another tie: its value is the one."""
        return isinstance(node, ast.Name) and any(
            each.value is not None for each in self.facts.bindings(node)
        )

    def _asked_for(self, node: ast.expr, kind: str) -> bool:
        """Whether the type stands where it is as right on a CPU: in a question, or as a mere name."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Tuple) and any(
            self.facts.resolve(each) == f"torch.{kind}" for each in parent.elts
        ):
            return True
        return only_named(self.facts, node) or asks_where(self.facts, node, kind)

    def _with_torch(self, fix: Fix, torch: DeviceExpr) -> Fix:
        return Fix(fix.edits, fix.safety, fix.needs | torch.needs)

    def _constructed(self, call: ast.Call, kind: str) -> Fix | None:
        dtype = DTYPES.get(kind.removesuffix("Tensor"))
        if dtype is None or call.keywords or not call.args:
            return None
        if any(isinstance(arg, ast.Starred) for arg in call.args):
            maker = "empty"  # *sizes
        elif len(call.args) > 1 or _size(call.args[0]):
            maker = "empty"
        elif self._data(call.args[0]):
            maker = "tensor"
        else:
            return None
        device, torch = self.devices.current(call), self.devices.torch(call)
        new = _maker(f"{torch.text}.{maker}", f"{torch.text}.{dtype}", device.text)
        return self.context.edit(call, new, DeviceExpr("", device.needs | torch.needs))

    def _data(self, node: ast.expr) -> bool:
        """Whether a single argument is data: a list, or an array that numpy made."""
        if isinstance(node, ast.Name):
            value = self.facts.value(node)
            return value is not None and not isinstance(value, ast.Name) and self._data(value)
        if isinstance(node, ast.Call):
            return (self.facts.resolve(node.func) or "").startswith("numpy.")
        return isinstance(node, (ast.List, ast.ListComp))


def _maker(function: str, dtype: str, device: str):  # type: ignore[no-untyped-def]
    from devicefix.rewrite.calls import on_call, with_keyword

    def renamed(call):  # type: ignore[no-untyped-def]
        import libcst as cst

        return call.with_changes(func=cst.parse_expression(function))

    def new(text: str) -> str:
        text = on_call(renamed)(text)
        return with_keyword("device", device)(with_keyword("dtype", dtype)(text))

    return new


def _size(node: ast.expr) -> bool:
    """Whether a single argument is a size: a number, `x.size()`, `x.shape`, `x.size(0)`, `len(x)`."""
    match node:
        case ast.Constant(value=value):
            return type(value) is int
        case ast.Call(func=ast.Attribute(attr="size")):
            return True
        case ast.Call(func=ast.Name(id="len")):
            return True
        case ast.Attribute(attr="shape"):
            return True
        case ast.Subscript(value=ast.Attribute(attr="shape")):
            return True
    return False


def only_named(facts: Facts, node: ast.expr) -> bool:
    """Whether a type stands where it is not used: as a key, in a set, or in an annotation."""
    for child, parent in facts.tree.ancestors(node):
        if isinstance(parent, ast.Dict):
            return child in parent.keys
        if isinstance(parent, (ast.arg, ast.Set)):
            return True
        if isinstance(parent, ast.AnnAssign):
            return child is parent.annotation
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return child is parent.returns
        if not isinstance(parent, (ast.Subscript, ast.Tuple, ast.BinOp)):
            return False
    return False


def asks_where(facts: Facts, node: ast.expr, kind: str) -> bool:
    """Whether a type is compared with to ask if a tensor is on a GPU.

    `FloatTensor` and the integer types are what tensors are by default; whoever asks for a half type asks
    what the tensor holds, and has to get the same answer on a CPU.
    """
    if kind in ("HalfTensor", "BFloat16Tensor", "DoubleTensor"):
        return False
    parent = facts.tree.parents.get(node)
    if isinstance(parent, (ast.Tuple, ast.List)):
        parent = facts.tree.parents.get(parent)
    if isinstance(parent, ast.Compare):
        return True
    return isinstance(parent, ast.Call) and last_name(parent.func) == "isinstance" and parent.func is not node


def cuda_type(facts: Facts, node: ast.expr) -> str | None:
    """`FloatTensor` for an expression that is `torch.cuda.FloatTensor`, else None."""
    name = facts.resolve(node)
    match = _TYPE.match(name) if name else None
    return match[1] if match else None


def typed_choice(facts: Facts, node: ast.IfExp) -> tuple[ast.expr, ast.expr, ast.expr] | None:
    """The test, the CUDA arm and the CPU arm of a choice between tensor types."""
    kinds = [_kind(facts, arm) for arm in (node.body, node.orelse)]
    if kinds == ["cuda", "cpu"]:
        return node.test, node.body, node.orelse
    if kinds == ["cpu", "cuda"]:
        return node.test, node.orelse, node.body
    return None


def _kind(facts: Facts, arm: ast.expr) -> str:
    name = arm.value if isinstance(arm, ast.Constant) else facts.resolve(arm)
    if not isinstance(name, str) or not name.startswith("torch.") or not name.endswith("Tensor"):
        return ""
    return "cuda" if name.startswith("torch.cuda.") else "cpu"
