from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from devicefix.devices.context import Context
from devicefix.devices.expression import DeviceExpr
from devicefix.facts import Facts, Function
from devicefix.facts.copies.moves import is_moved
from devicefix.facts.values import last_name
from devicefix.model import Finding, Fix
from devicefix.rewrite.blocks import choose
from devicefix.rewrite.operations import AddKeyword, Chain, KeepReceiver, ReplaceFunction
from devicefix.rules.base import Example, Rule

# The dtypes of the legacy types: https://docs.pytorch.org/docs/stable/tensors.html.
DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Byte": "uint8",
    "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64", "Bool": "bool",
}  # fmt: skip


class TypedTensor(Rule):
    """
    ## What it does
    Finds CUDA tensor types, such as `torch.cuda.FloatTensor`, that the program calls to create a tensor, passes to
    `.type(...)` or stores in a variable.

    ## Why it matters
    Without CUDA, creating a tensor of such a type or converting a tensor to it raises an error such as "type
    torch.cuda.FloatTensor not available".

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
    The fix is usually safe: with CUDA, the tensor has the same type and device as before, and random numbers are drawn
    on the same device. If devicefix can't tell whether the argument is a size or data, the fix keeps the call, but uses
    the CPU type without CUDA.
    """

    code = "DF301"
    name = "typed-tensor"
    summary = "A tensor type such as `torch.cuda.FloatTensor` needs CUDA"
    words = (b"cuda",)
    common_words = (b"tensor",)
    references = tuple(f"torch.cuda.{part}{kind}Tensor" for part in ("", "sparse.") for kind in DTYPES)
    INVALID = (
        Example(
            "a constructor with a size",
            before="""
                import torch

                z = torch.cuda.HalfTensor(x.size(0), n, x.size(2)).normal_()
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                z = torch.empty(x.size(0), n, x.size(2), dtype=torch.float16, device=device).normal_()
            """,
        ),
        Example(
            "a constructor with data",
            before="""
                import torch

                w = torch.cuda.FloatTensor([0.3, 0.7])
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                w = torch.tensor([0.3, 0.7], dtype=torch.float32, device=device)
            """,
        ),
        Example(
            "a constructor with an unknown argument",
            before="""
                import torch

                w = torch.cuda.FloatTensor(weights)
            """,
            after="""
                import torch

                w = (torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor)(weights)
            """,
        ),
        Example(
            "the type method",
            before="""
                import torch

                y = x.type(torch.cuda.LongTensor)
            """,
            after="""
                import torch

                y = x.type(torch.cuda.LongTensor if torch.cuda.is_available() else torch.LongTensor)
            """,
        ),
        Example(
            "a type under another name of torch.cuda",
            before="""
                import torch.cuda as tc

                dtype = tc.FloatTensor
            """,
            after="""
                import torch
                import torch.cuda as tc

                dtype = tc.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
            """,
        ),
        Example(
            "a type imported under another name",
            before="""
                from torch.cuda import FloatTensor as FT

                FT([1.0])
            """,
            after="""
                import torch
                from torch.cuda import FloatTensor as FT

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                torch.tensor([1.0], dtype=torch.float32, device=device)
            """,
        ),
        Example(
            "a variable for torch.cuda",
            before="""
                import torch

                T = torch.cuda
                T.FloatTensor(2)
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                T = torch.cuda
                torch.empty(2, dtype=torch.float32, device=device)
            """,
        ),
        Example(
            "a type by getattr",
            before="""
                import torch

                x = getattr(torch.cuda, "FloatTensor")(2)
                y = getattr(torch, "cuda").LongTensor([1])
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                x = torch.empty(2, dtype=torch.float32, device=device)
                y = torch.tensor([1], dtype=torch.int64, device=device)
            """,
        ),
        Example(
            "a question about a tensor that is moved",
            before="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                x = x.to(device)
                if isinstance(x, torch.cuda.FloatTensor):
                    x = x.double()
            """,
        ),
    )
    VALID = (
        Example(
            "an annotation",
            """
                import torch


                def f(x: torch.cuda.FloatTensor) -> torch.cuda.FloatTensor:
                    return x
            """,
        ),
        Example(
            "the keys of a dictionary",
            """
                import torch

                ops = {torch.FloatTensor: a, torch.cuda.FloatTensor: b}
            """,
        ),
        Example(
            "a tuple with the type of the CPU",
            """
                import torch

                FLOATS = (torch.FloatTensor, torch.cuda.FloatTensor)
            """,
        ),
        Example(
            "an isinstance test",
            """
                import torch

                if isinstance(x, torch.cuda.FloatTensor):
                    y = f(x.cuda())
            """,
        ),
        Example(
            "a choice by availability",
            """
                import torch

                T = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
            """,
        ),
        Example(
            "the type of the CPU",
            """
                import torch

                x = torch.FloatTensor(3)
            """,
        ),
        Example(
            "an expression with a choice around it",
            """
                import torch

                y = x.type(torch.cuda.FloatTensor) if torch.cuda.is_available() else x
            """,
        ),
    )

    def visit_reference(self, node: ast.Attribute | ast.Name, name: str) -> Iterator[Finding]:
        if isinstance(node.ctx, ast.Load):
            yield from self._check(node, name)

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        """Check `getattr(torch.cuda, "FloatTensor")`."""
        if isinstance(node.func, ast.Name) and node.func.id == "getattr":
            name = self.facts.resolve(node)
            if name in self.references:
                yield from self._check(node, name)

    def _check(self, node: ast.expr, name: str) -> Iterator[Finding]:
        """Check an expression that resolves to a tensor type of CUDA."""
        kind = name.removeprefix("torch.cuda.")
        if self.facts.is_guarded(node):
            return
        if self._asked_for(node, kind):
            if asks_about_moved(self.facts, node):
                yield self.finding(node, f"a CPU tensor is never a `{name}`; compare the dtype")
            return
        call = self.facts.tree.call_of(node)
        if call is not None and call.keywords:
            yield self.finding(node, f"`torch.cuda.{kind}` needs CUDA; use `torch.empty` or `torch.tensor`")
            return
        torch = self.devices.torch(node)
        replaced = (
            (self._constructed(call, kind) if call is not None else None)
            or default_type(self.context, node, kind)
            or self._moved(node, kind)
        )
        fix = replaced or self.context.when_cuda(node, f"{torch.text}.{kind}")
        fix = replace(fix, needs=fix.needs | torch.needs)
        advice = "specify a dtype and a device instead" if replaced else "use it only if CUDA is available"
        yield self.finding(node, f"`torch.cuda.{kind}` needs CUDA; {advice}", fix)

    def _asked_for(self, node: ast.expr, kind: str) -> bool:
        """Return whether the type is only compared or named, which is also right on a CPU."""
        parent = self.facts.tree.parents.get(node)
        beside = parent.elts if isinstance(parent, ast.Tuple) else ()
        if f"torch.{kind}" in map(self.facts.resolve, beside):
            return True
        return only_named(self.facts, node) or asks_where(self.facts, node, kind)

    def _constructed(self, call: ast.Call, kind: str) -> Fix | None:
        dtype = DTYPES.get(kind.removesuffix("Tensor"))
        if dtype is None or not call.args:
            return None
        if len(call.args) > 1 or isinstance(call.args[0], ast.Starred) or _size(call.args[0]):
            maker = "empty"
        elif self._data(call.args[0]):
            maker = "tensor"
        else:
            return None
        self.context.hold(call.func)
        device, torch = self.devices.current(call), self.devices.torch(call)
        new = _maker(f"{torch.text}.{maker}", f"{torch.text}.{dtype}", device.text)
        return self.context.edit(call, new, DeviceExpr("", device.needs | torch.needs))

    def _moved(self, node: ast.expr, kind: str) -> Fix | None:
        """Return the fix of a call or conversion, whose tensor goes to another accelerator than CUDA."""
        call = self.facts.tree.call_of(node)
        if self.context.accelerator is None or call is None:
            return converted(self.context, node, kind)
        if not self.context.may_repeat(call):
            return None
        torch, device = self.devices.torch(node), self.devices.current(node)
        change = Chain((ReplaceFunction(f"{torch.text}.{kind}"), lambda code: f"{code}.to({device.text})"))
        return self.context.keep_for_cuda(call, change, device)

    def _data(self, node: ast.expr) -> bool:
        """Return whether a single argument is data: a list, or an array of NumPy."""
        if isinstance(node, ast.Name):
            value = self.facts.value(node)
            return value is not None and not isinstance(value, ast.Name) and self._data(value)
        if isinstance(node, ast.Call):
            return (self.facts.resolve(node.func) or "").startswith("numpy.")
        return isinstance(node, (ast.List, ast.ListComp))


def converted(context: Context, node: ast.expr, kind: str) -> Fix | None:
    """Return the fix of `x.type(…)`, which moves to another accelerator than CUDA, too.

    Args:
        context: the context of the module.
        node: the type, or its name.
        kind: the last part of its name, such as `FloatTensor`.

    Returns:
        None where CUDA is the target, and for other uses of the type.
    """
    dtype = DTYPES.get(kind.removesuffix("Tensor"))
    match context.facts.tree.parents.get(node):
        case ast.Call(func=ast.Attribute(value=receiver, attr="type"), args=[_], keywords=[]) as call:
            if context.accelerator is None or dtype is None or not context.may_repeat(receiver):
                return None
            torch, device = context.devices.torch(node), context.devices.current(node)
            new = f".to({device.text}, {torch.text}.{dtype})"
            return context.keep_for_cuda(call, Chain((KeepReceiver(), lambda code: code + new)), device)
    return None


def default_type(context: Context, node: ast.expr, kind: str) -> Fix | None:
    """Return the fix of a default type of tensors: another accelerator than CUDA becomes the default device.

    Args:
        context: the context of the module.
        node: the type.
        kind: its name, such as `FloatTensor`.

    Returns:
        None where CUDA is the target, and for other uses of the type.
    """
    call = context.facts.tree.parents.get(node)
    statement = context.facts.tree.parents.get(call)
    dtype = DTYPES.get(kind.removesuffix("Tensor"))
    is_call = dtype is not None and context.facts.call(call, "torch.set_default_tensor_type")
    if context.accelerator is None or not is_call or not isinstance(statement, ast.Expr):
        return None
    device = context.devices.shared(statement, define=True, may_be_text=True)
    if device is None:
        return None
    torch, question = context.devices.torch(node), context.devices.available(node, of_cuda=True)
    context.hold(statement)
    new = [f"{torch.text}.set_default_device({device.text})"]
    new += [f"{torch.text}.set_default_dtype({torch.text}.{dtype})"] if dtype != "float32" else []
    edits = choose(context.facts, statement, question.text, *new)
    return Fix(edits, needs=torch.needs | question.needs | device.needs)


def _maker(function: str, dtype: str, device: str) -> Chain:
    return Chain((ReplaceFunction(function), AddKeyword("dtype", dtype), AddKeyword("device", device)))


def _size(node: ast.expr) -> bool:
    """Return whether a single argument is a size: a number, `x.size()`, `x.shape`, `x.size(0)`, `len(x)`."""
    match node:
        case ast.Constant(value=value):
            return type(value) is int
        case ast.Call(func=ast.Attribute(attr="size" | "Size") | ast.Name(id="len")):
            return True
        case ast.Attribute(attr="shape") | ast.Subscript(value=ast.Attribute(attr="shape")):
            return True
    return False


def only_named(facts: Facts, node: ast.expr) -> bool:
    """Return whether a type is only named: as a key, in a set, or in an annotation."""
    for child, parent in facts.tree.ancestors(node):
        if isinstance(parent, ast.Dict):
            return child in parent.keys
        if isinstance(parent, (ast.arg, ast.Set)):
            return True
        if isinstance(parent, ast.AnnAssign):
            return child is parent.annotation
        if isinstance(parent, Function):
            return child is parent.returns
        if not isinstance(parent, (ast.Subscript, ast.Tuple, ast.BinOp)):
            return False
    return False


def asks_where(facts: Facts, node: ast.expr, kind: str) -> bool:
    """Return whether a comparison with a type checks that a tensor is on a GPU.

    `FloatTensor` and the integer types are the default types of tensors. A comparison with a half type checks the
    dtype instead, and must have the same result on a CPU.
    """
    if kind in ("HalfTensor", "BFloat16Tensor", "DoubleTensor"):
        return False
    parent = facts.tree.parents.get(node)
    if isinstance(parent, (ast.Tuple, ast.List)):
        parent = facts.tree.parents.get(parent)
    if isinstance(parent, ast.Compare):
        return True
    return isinstance(parent, ast.Call) and last_name(parent.func) == "isinstance" and parent.func is not node


def asks_about_moved(facts: Facts, node: ast.expr) -> bool:
    """Return whether a test asks for the type of a tensor that is moved: on a CPU, its answer is the other one."""
    match facts.tree.parents.get(node):
        case ast.Call(args=[asked, kind]) if kind is node:
            return is_moved(facts, asked)
        case ast.Compare(left=left, comparators=[right]):
            asked = right if left is node else left
            return isinstance(asked, ast.Call) and is_moved(facts, getattr(asked.func, "value", asked))
    return False


def typed_choice(facts: Facts, node: ast.IfExp) -> tuple[ast.expr, ast.expr, ast.expr] | None:
    """Return the test, the CUDA arm and the CPU arm of a choice between tensor types, or None."""
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
