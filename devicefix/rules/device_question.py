from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from devicefix.devices.context import Context
from devicefix.facts.flow.kinds import Kind
from devicefix.facts.texts import text_of
from devicefix.facts.values import is_constant
from devicefix.model import Edit, Finding, Fix, Need
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.questions import UNKNOWN, Questions

# Where the value of a question counts only as true or false.
_TESTS = (ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.keyword, ast.Assign, ast.Return)


class _Type(NamedTuple):
    """The type of a device.

    Attributes:
        code: its code.
        is_known: whether the device is certainly a GPU or the CPU.
        why: why it is not safe to ask for it.
        needs: what the code needs.
    """

    code: str
    is_known: bool = False
    why: str = ""
    needs: frozenset[Need] = frozenset()


class DeviceQuestion(Rule):
    """
    ## What it does
    With `--target accelerator`, finds checks for CUDA tensors and devices, such as `x.is_cuda` and `device.type ==
    "cuda"`, if the code under the check may work on any accelerator.

    ## Why it matters
    On another accelerator, the program silently skips the code. For example, the program measures times without waiting
    for the device.

    ## Example
    ```python
    if device.type == "cuda":
        torch.cuda.synchronize()
    ```

    ## Use instead
    ```python
    if device.type not in ("cpu", "meta"):
        torch.accelerator.synchronize()
    ```

    ## Fix safety
    The fix is usually safe if the check guards only `torch` functions that every accelerator supports. For CUDA and CPU
    devices, the check's result stays the same. The fix is unsafe if the check guards a call such as `kernel(x)`,
    because the function may be written for CUDA. The rule ignores checks around CUDA-only features, such as CUDA
    graphs, and checks that raise an error.
    """

    code = "DF412"
    name = "device-question"
    summary = "Code that may work on any accelerator is run only with CUDA"
    targets = ("accelerator",)
    words = (b"is_cuda", b"cuda")
    attributes = ("is_cuda",)
    fails = False
    INVALID = (
        Example(
            "the device of a tensor, and a device that is known",
            before="""
                import torch

                if x.is_cuda:
                    torch.cuda.synchronize()
                if not y.is_cuda:
                    y = y.float()
                else:
                    torch.cuda.empty_cache()
                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                pin = device.type == "cuda"
            """,
            after="""
                import torch

                if x.device.type not in ("cpu", "meta"):
                    torch.accelerator.synchronize()
                if y.device.type in ("cpu", "meta"):
                    y = y.float()
                else:
                    torch.accelerator.empty_cache()
                device = torch.device(
                    torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
                )
                pin = device.type != "cpu"
            """,
        ),
        Example(
            "a device by its name",
            before="""
                import torch

                device = "cuda"
                device_type = "cuda" if "cuda" in device else "cpu"
                if device_type == "cuda":
                    torch.cuda.empty_cache()
                if args.device.startswith("cuda"):
                    torch.cuda.empty_cache()
            """,
            after="""
                import torch

                device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
                device_type = torch.device(device).type
                if device_type != "cpu":
                    torch.accelerator.empty_cache()
                if torch.device(args.device).type not in ("cpu", "meta"):
                    torch.accelerator.empty_cache()
            """,
            unsafe=True,
        ),
        Example(
            "a function that may be written for CUDA",
            before="""
                import torch

                if x.device.type != "cuda":
                    y = plain(x)
                else:
                    y = fused(x)
            """,
            after="""
                import torch

                if x.device.type in ("cpu", "meta"):
                    y = plain(x)
                else:
                    y = fused(x)
            """,
            unsafe=True,
        ),
        Example(
            "the type of a device that may be another one, and of one that may not, by a name",
            before="""
                import torch


                def trim(x):
                    kind = x.device.type
                    own = "cuda" if torch.cuda.is_available() else "cpu"
                    if kind == "cuda":
                        torch.cuda.empty_cache()
                    if own == "cuda":
                        torch.cuda.empty_cache()
            """,
            after="""
                import torch


                def trim(x):
                    kind = x.device.type
                    own = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
                    if kind not in ("cpu", "meta"):
                        torch.accelerator.empty_cache()
                    if own != "cpu":
                        torch.accelerator.empty_cache()
            """,
        ),
    )
    VALID = (
        Example(
            "what only CUDA has, and checks",
            """
                import torch

                if x.is_cuda:
                    kernel = torch.cuda.CUDAGraph()
                assert x.is_cuda
                if not x.is_cuda:
                    raise ValueError("a CUDA tensor is needed")
            """,
        ),
        Example(
            "two tensors",
            """
                import torch

                same = x.is_cuda == y.is_cuda
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._questions = Questions(context)

    def visit_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        if node.attr == "is_cuda" and not self.facts.bindings(node) and isinstance(node.ctx, ast.Load):
            kind = _Type(f"{self.context.source.code(node.value)}.device.type")
            yield from self._check(node, kind, is_on=True)

    def visit_Compare(self, node: ast.Compare) -> Iterator[Finding]:
        if (kind := self._asked(node)) is not None:
            yield from self._check(node, kind, is_on=isinstance(node.ops[0], (ast.Eq, ast.In)))

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if (kind := self._asked(node)) is not None:
            yield from self._check(node, kind, is_on=True)

    def visit_IfExp(self, node: ast.IfExp) -> Iterator[Finding]:
        if not is_constant(node.body, "cuda") or not is_constant(node.orelse, "cpu"):
            return
        if (kind := self._asked(node.test)) is not None:
            fix = Fix((Edit(*self.context.source.span(node), kind.code),), kind.why, kind.needs)
            code = self.context.source.code(node.test)
            yield self.finding(node, f"`{code}` checks only for CUDA; use the device's type instead", fix)

    def _asked(self, node: ast.expr) -> _Type | None:
        """Return the type of the device that a question compares with CUDA, None for another question."""
        match node:
            case ast.Compare(
                left=ast.Attribute(attr="type", value=device) as kind,
                ops=[ast.Eq() | ast.NotEq()],
                comparators=[name],
            ) if text_of(name) == "cuda":
                return _Type(self.context.source.code(kind), self._is_known(device))
            case ast.Compare(left=ast.Name() as kind, ops=[ast.Eq() | ast.NotEq()], comparators=[name]):
                devices = self._typed(kind) if text_of(name) == "cuda" else None
                return None if devices is None else _Type(kind.id, all(map(self._is_known, devices)))
            case ast.Compare(left=name, ops=[ast.In() | ast.NotIn()], comparators=[device]):
                return self._named(device) if is_constant(name, "cuda") else None
            case ast.Call(func=ast.Attribute(attr="startswith", value=device), args=[name], keywords=[]):
                return self._named(device) if is_constant(name, "cuda") else None
        return None

    def _named(self, device: ast.expr) -> _Type:
        """Return the type of a device that is given as a string."""
        match device:
            case ast.Call(func=ast.Name(id="str"), args=[inner], keywords=[]):
                return _Type(f"{self.context.source.code(inner)}.type", self._is_known(inner))
        torch = self.devices.torch(device)
        why = "" if self._is_known(device) else "the string may not be a device name"
        code = f"{torch.text}.device({self.context.source.code(device)}).type"
        return _Type(code, not why, why, torch.needs)

    def _is_known(self, device: ast.expr) -> bool:
        """Return whether a device is certainly a GPU or the CPU."""
        return self.facts.kinds.of(device).are({Kind.CUDA, Kind.CPU, Kind.DEVICE})

    def _typed(self, node: ast.expr) -> list[ast.expr] | None:
        """Return the devices whose types a name may be, None if it may be something else."""
        values = [binding.value for binding in self.facts.bindings(node)]
        if not values or not all(value is not None and self._is_type_value(value) for value in values):
            return None
        parts = (part for value in values if value is not None for part in ast.walk(value))
        return [part.value for part in parts if isinstance(part, ast.Attribute) and part.attr == "type"]

    def _is_type_value(self, value: ast.expr) -> bool:
        match value:
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_type_value(body) and self._is_type_value(orelse)
            case ast.Attribute(attr="type"):
                return True
        return is_constant(value, "cuda", "cpu")

    def _check(self, node: ast.expr, kind: _Type, *, is_on: bool) -> Iterator[Finding]:
        """Check a question.

        Args:
            node: the question.
            kind: the type of the device that it is about.
            is_on: whether the question is true for a CUDA device.
        """
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.UnaryOp):
            node, parent, is_on = parent, self.facts.tree.parents.get(parent), not is_on
        if not isinstance(parent, _TESTS) or self._ends_program(node) or self._questions.is_one_of_many(node):
            return
        if isinstance(parent, ast.IfExp) and is_constant(parent.body, "cuda"):
            return  # it has a finding as a whole
        others = () if kind.is_known else ("meta",)
        if self._questions.excludes_mps(node):
            others = (*others, "mps")
        new = self.context.source.quoted(f"{kind.code} {_compared(others, is_on=is_on)}")
        fix = Fix((Edit(*self.context.source.span(node), new),), kind.why, kind.needs)
        fix, obstacle = self._questions.fix(node, fix)
        if obstacle is not None:
            return
        if not fix.why and not all(map(self._is_general, self._questions.guarded(node))):
            fix = replace(fix, why=UNKNOWN)
        code = self.context.source.code(node)
        advice = "check for any device except the CPU" if is_on else "check for the CPU"
        if "mps" in others:
            advice += " and MPS" if is_on else " or MPS"
        advice += "" if is_on else " instead"
        yield self.finding(node, f"`{code}` checks only for CUDA; {advice}", fix)

    def _ends_program(self, node: ast.expr) -> bool:
        """Return whether a question decides whether the program ends."""
        statement = self.facts.tree.statement(node)
        blocks = (statement.body, statement.orelse) if isinstance(statement, ast.If) else ()
        refusals = self.facts.guards.refusals
        skips = (isinstance(each, ast.Raise) for block in blocks for each in block)
        return isinstance(statement, ast.Assert) or any(skips) or any(map(refusals.refuses, blocks))

    def _is_general(self, site: ast.AST) -> bool:
        """Return whether code calls only functions of torch or Python, and methods of objects."""
        return all(self._knows(node.func) for node in ast.walk(site) if isinstance(node, ast.Call))

    def _knows(self, function: ast.expr) -> bool:
        name = self.facts.resolve(function)
        if name is not None:
            return name.partition(".")[0] in {"torch", *sys.stdlib_module_names}
        if isinstance(function, ast.Name):
            return hasattr(builtins, function.id) and self.context.has_builtin(function, function.id)
        return isinstance(function, ast.Attribute)


def _compared(others: tuple[str, ...], *, is_on: bool) -> str:
    """Return the operator and the right side of a question for any device but the CPU and some others."""
    if not others:
        return f'{"!=" if is_on else "=="} "cpu"'
    names = ", ".join(f'"{name}"' for name in ("cpu", *others))
    return f"{'not in' if is_on else 'in'} ({names})"
