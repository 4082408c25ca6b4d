from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from devicefix.devices.context import Context
from devicefix.facts.flow.kinds import Kind
from devicefix.facts.texts import text_of
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.questions import UNKNOWN, Questions

# Where the value of a question counts only as true or false.
_TESTS = (ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.keyword, ast.Assign, ast.Return)


class DeviceQuestion(Rule):
    """
    ## What it does
    Finds questions whether a tensor or a device is on CUDA, such as `x.is_cuda` and `device.type == "cuda"`, that
    guard code for any accelerator. This rule applies only with `--target accelerator`.

    ## Why it matters
    On another accelerator, the answer is no, and the program skips the code without an error. For example, it times its
    steps without waiting for the device, or trains without mixed precision.

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
    The fix is safe if the question only decides about functions of `torch` that every accelerator has. With CUDA and
    on a CPU, the answer stays the same; `"meta"` is left out if the device is known to be a GPU or the CPU. If other
    functions are called under the question, the fix is unsafe, because they may be written for CUDA. A question that
    guards what only CUDA has, such as NCCL, is right as it is and is not reported. The same is true of a check that
    ends the program.
    """

    code = "DF412"
    name = "device-question"
    summary = "A question for CUDA decides about code for any accelerator"
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
                    torch.get_device_module().empty_cache()
                device = torch.device(
                    torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
                )
                pin = device.type != "cpu"
            """,
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
            parent = self.facts.tree.parents.get(node)
            is_negated = isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
            device = f"{self.context.source.code(node.value)}.device"
            yield from self._check(parent if is_negated else node, device, node, is_on=not is_negated)  # type: ignore[arg-type]

    def visit_Compare(self, node: ast.Compare) -> Iterator[Finding]:
        match node:
            case ast.Compare(
                left=ast.Attribute(attr="type", value=device),
                ops=[ast.Eq() | ast.NotEq() as op],
                comparators=[kind],
            ) if text_of(kind) == "cuda":
                code = self.context.source.code(device)
                yield from self._check(node, code, device, is_on=isinstance(op, ast.Eq))

    def _check(self, node: ast.expr, device: str, owner: ast.expr, *, is_on: bool) -> Iterator[Finding]:
        """Check a question.

        Args:
            node: the question.
            device: the code of the device that it is about.
            owner: the node of the device, or `x.is_cuda`.
            is_on: whether the question is true for a CUDA device.
        """
        parent = self.facts.tree.parents.get(node)
        if (
            not isinstance(parent, _TESTS)
            or self._ends_program(parent)
            or self._questions.is_one_of_many(node)
        ):
            return
        fix = Fix((Edit(*self.context.source.span(node), self._new(device, owner, is_on=is_on)),))
        fix, obstacle = self._questions.fix(node, fix)
        if obstacle is not None:
            return
        if not fix.why and not all(map(self._is_general, self._questions.guarded(node))):
            fix = replace(fix, why=UNKNOWN)
        code = self.context.source.code(node)
        yield self.finding(node, f"`{code}` checks only for CUDA; check for any device but the CPU", fix)

    def _new(self, device: str, owner: ast.expr, *, is_on: bool) -> str:
        """Return the code of a question whether a device is an accelerator, or is none."""
        if self.facts.kinds.of(owner).are({Kind.CUDA, Kind.CPU, Kind.DEVICE}):
            return self.context.source.quoted(f'{device}.type {"!=" if is_on else "=="} "cpu"')
        return self.context.source.quoted(f'{device}.type {"not in" if is_on else "in"} ("cpu", "meta")')

    def _ends_program(self, parent: ast.AST) -> bool:
        """Return whether a test ends the program."""
        return isinstance(parent, ast.If) and self.facts.guards.refusal(parent) is not None

    def _is_general(self, site: ast.AST) -> bool:
        """Return whether code calls only functions of torch, and methods of objects."""
        calls = [node for node in ast.walk(site) if isinstance(node, ast.Call)]
        return all(isinstance(call.func, ast.Attribute) or self._is_of_torch(call.func) for call in calls)

    def _is_of_torch(self, function: ast.expr) -> bool:
        """Return whether a function is one of torch, or is built in."""
        name = self.facts.resolve(function)
        if name is None:
            return isinstance(function, ast.Name) and self.context.has_builtin(function, function.id)
        return name.partition(".")[0] == "torch"
