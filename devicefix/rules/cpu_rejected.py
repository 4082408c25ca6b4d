from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from devicefix.devices.context import Context
from devicefix.facts.flow.parameters import reads_of
from devicefix.facts.refused_devices import missing_device
from devicefix.facts.scopes import dotted
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.checks import Checks, asks_tensor
from devicefix.rules.shared.refusals import FAILS, MESSAGE, Refusals


class CpuRejected(Rule):
    """
    ## What it does
    Finds checks that fail on a CPU because they require a GPU tensor, a CUDA device, the NCCL backend, or a number of
    GPUs. The rule ignores checks that run only if the user requests a GPU, as in `if args.cuda: assert x.is_cuda`.

    ## Why it matters
    The check stops the program on a CPU, even if the code after the check would run there.

    ## Example
    ```python
    assert x.is_cuda
    ```

    ## Use instead
    ```python
    if x.is_cuda:
        y = kernel(x)
    else:
        y = in_plain_torch(x)
    ```

    ## Fix safety
    There is no fix. Remove the check if the code after it works on a CPU. Otherwise, add a branch for the CPU.
    devicefix usually fixes nothing in code that runs only if a check of a tensor or device passes. Instead, the finding
    lists up to five lines with other findings.
    """

    code = "DF704"
    name = "cpu-rejected"
    summary = "A check, for example of a tensor's device, fails on a CPU"
    words = (b"cuda", b"'cu'", b'"cu"', b"nccl", b"NCCL", b"is_cpu")
    common_words = (b"device", b"gpu")
    INVALID = (
        Example(
            "problems in an attribute, for which another method raises an error",
            before="""
                import torch


                class Config:
                    def validate(self):
                        if len(self.gpus) > torch.cuda.device_count():
                            self.problems.append("too few GPUs")

                    def end(self):
                        if self.problems:
                            raise ValueError(self.problems)
            """,
        ),
        Example(
            "an assert about the number of GPUs",
            before="""
                import torch

                assert torch.cuda.device_count() > rank
            """,
        ),
        Example(
            "checks of availability and the number of GPUs",
            before="""
                import torch

                assert torch.cuda.is_available() and torch.cuda.device_count() >= n
                if torch.cuda.device_count() != n:
                    raise ValueError(n)
            """,
        ),
        Example(
            "a refusal below a test of a device as text",
            before="""
                import torch

                if str(x.device) == "cuda:0":
                    print("ready")
                else:
                    raise ValueError(x.device)
            """,
        ),
        Example(
            "an assert about the name of a device",
            before="""
                import torch

                assert device in ['cuda', 'npu']
            """,
        ),
        Example(
            "a tensor that has to be on a GPU",
            before="""
                import torch

                if not x.is_cuda:
                    raise NotImplementedError
            """,
        ),
        Example(
            "an assert about where a tensor is",
            before="""
                import torch

                x = torch.ones(1).to(where)
                assert x.is_cuda
            """,
        ),
        Example(
            "an assert about the type of a device",
            before="""
                import torch

                assert x.device.type == "cuda"
                assert q7 == "cuda"
            """,
        ),
        Example(
            "an assert about several tensors",
            before="""
                assert all(t.is_cuda for t in tensors)
            """,
        ),
        Example(
            "an error about the type of a device",
            before="""
                if x.device.type != "cuda":
                    raise ValueError
                if q7 not in ("cuda", "xpu"):
                    raise ValueError(q7)
            """,
        ),
        Example(
            "a backend that has to be NCCL, by its name in torch",
            before="""
                from torch.distributed import Backend

                assert q7 == Backend.NCCL
                assert q8 == "nccl"
            """,
        ),
        Example(
            "a compiled extension",
            before="""
                import torch

                from . import _C


                def double(x):
                    assert x.is_cuda and x.dim() == 1
                    return _C.double(x)
            """,
        ),
        Example(
            "what the branch for the CPU does not implement",
            before="""
                import torch


                def deform(x, groups):
                    if not x.is_cuda:
                        if groups > 1:
                            raise NotImplementedError
                        return deform_one(x)
                    return kernels.deform(x, groups)


                def warp(x, mode):
                    if x.is_cuda:
                        y = kernels.warp(x, mode)
                    else:
                        if mode not in ("nearest", "linear"):
                            raise NotImplementedError(mode)
                        y = warp_slowly(x, mode)
                    return y
            """,
        ),
        Example(
            "an error of a wrapper",
            before="""
                import torch

                from . import _C


                def double(x):
                    if not x.is_cuda:
                        raise ValueError("a CUDA tensor is needed")
                    return _C.double(x)
            """,
        ),
        Example(
            "an assert before a function of the module",
            before="""
                import torch


                def my_forward(x):
                    return x


                def double(x):
                    assert x.is_cuda
                    return my_forward(x)
            """,
        ),
        Example(
            "a choice of classes by a device",
            before="""
                import torch

                classes = {"cuda": Parallel, "npu": Other}


                def wrap(model, device):
                    assert device in ["cuda", "npu"]
                    return classes[device](model)
            """,
        ),
        Example(
            "a tensor, before code that only runs if the check passes",
            before="""
                import torch


                def scale(x):
                    torch.cuda.synchronize()
                    return x


                def attend(q):
                    assert q.is_cuda
                    torch.cuda.set_device(q.device)
                    return scale(q) + torch.zeros(3, device="cuda")
            """,
        ),
        Example(
            "a tensor in a module that needs a library elsewhere",
            before="""
                import apex
                import torch


                def place(x):
                    assert x.is_cuda
            """,
        ),
        Example(
            "the result of a test",
            before="""
                import torch


                def test_move():
                    assert move(x).is_cuda
            """,
        ),
        Example(
            "a flag that is false without CUDA",
            before="""
                import torch

                use_gpu = not args.cpu and torch.cuda.is_available()
                if not use_gpu:
                    raise ValueError
            """,
        ),
        Example(
            "a list of GPUs",
            before="""
                import torch

                q7 = [str(i) for i in range(torch.cuda.device_count())]
                if len(q7) == 0:
                    raise ValueError
            """,
        ),
    )
    VALID = (
        Example(
            "what neither branch implements, and a wrong argument",
            """
                import torch


                def warp(x, mode):
                    if mode == "other":
                        raise NotImplementedError(mode)
                    if not x.is_cuda:
                        if x.dim() != 4:
                            raise ValueError("a batch of images is needed")
                        return warp_slowly(x, mode)
                    return kernels.warp(x, mode)
            """,
        ),
        Example(
            "numbers of GPUs that may be 0, and an invalid number of a GPU",
            """
                import torch

                assert torch.cuda.device_count() <= 8
                assert torch.cuda.device_count() != 1
                if args.gpu >= torch.cuda.device_count():
                    raise ValueError(args.gpu)
            """,
        ),
        Example(
            "names of implementations",
            """
                assert impl in ["ref", "cuda"]
            """,
        ),
        Example(
            "a backend among others",
            """
                assert backend in ("nccl", "gloo")
                if backend == "nccl":
                    raise ValueError("use gloo")
            """,
        ),
        Example(
            "a flag of another kind",
            """
                import torch

                args.fancy = False
                assert args.fancy == True
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._guards = self.facts.guards
        self._ends = self._guards.refusals
        self._refusals = Refusals(context)
        self._checks = Checks(context)
        self._may_ask_tensors = "is_cuda" in self.facts.tree.text

    def visit_Assert(self, node: ast.Assert) -> Iterator[Finding]:
        test = node.test
        if self._guards.settled(test):
            return
        if missing := missing_device(self.facts, test, True):
            yield from self._asked(
                node, node, f"this check rejects {missing}; allow {missing}, too", stops=True
            )
        elif self._checks.parts(test) is None:
            if self._checks.is_false_on_a_cpu(test, True) or self._checks.needs_gpus(test):
                stops = asks_tensor(test) or isinstance(test, ast.BoolOp)
                yield from self._asked(node, node, self._needed(test), stops=stops)

    def visit_For(self, node: ast.For | ast.While) -> Iterator[Finding]:
        """Check a loop that only a GPU leaves, before an error."""
        leaving = (ast.Return, ast.Break) if node.orelse else ast.Return
        last = self._ends.last(node.orelse or self.facts.tree.after(node))
        ways = [way for way in ast.walk(node) if isinstance(way, leaving)] if last is not None else []
        if last is not None and ways and all(map(self._guards.is_guarded, ways)):
            yield from self._asked(node, last, f"{MESSAGE}; add a CPU path", last)

    visit_While = visit_For

    def visit_If(self, node: ast.If) -> Iterator[Finding]:
        if self._guards.refusal(node) is not None or self._ends.both(node):
            return
        for branch, truth in ((node.body, False), (self._guards.otherwise(node), True)):
            at_once = self._ends.last(branch)
            last = at_once or self._follows(branch)
            if last is not None:
                missing = missing_device(self.facts, node.test, truth)
                if missing or self._checks.is_false_on_a_cpu(node.test, truth):
                    message = (
                        f"this check rejects {missing}; allow {missing}, too"
                        if missing
                        else self._needed(node.test, FAILS if at_once is None else MESSAGE)
                    )
                    stops = bool(missing) or asks_tensor(node.test)
                    yield from self._asked(node, node.test, message, last, stops)
            elif self._may_ask_tensors and asks_tensor(node.test):
                if self._checks.is_false_on_a_cpu(node.test, truth):
                    yield from self._rejected(node, branch)

    def _follows(self, branch: list[ast.stmt]) -> ast.stmt | None:
        """Return the statement that refuses what a branch returns, or adds to a list, where that is true."""
        tree, names = self.facts.tree, list[ast.expr]()
        match branch[-1:]:
            case [ast.Return(value=ast.Call() | ast.JoinedStr() | ast.Constant(value=str()))]:
                uses = (tree.statement(read) for read in reads_of(tree, tree.scope(branch[-1]).node))
                names = [target for use in uses for target in getattr(use, "targets", ())]
            case [ast.Expr(value=ast.Call(func=ast.Attribute(value=name, attr="append")))]:
                names = [name]
        for held in names:
            own = self.facts.reads_in(tree.scope(held), held.id) if isinstance(held, ast.Name) else None
            for read in tree.reads(dotted(held) or "") if own is None else own:
                check = tree.parents[read]
                last = self._ends.last(check.body) if isinstance(check, ast.If) else None
                if last is not None:
                    return last
        return None

    def _rejected(self, node: ast.If, branch: list[ast.stmt]) -> Iterator[Finding]:
        """Yield the finding of what the branch for the CPU does not implement, under a condition of its own."""
        error = NotImplementedError.__name__
        for inner in branch:
            last = self._ends.last(inner.body) if isinstance(inner, ast.If) else None
            raises = last is not None and self._ends.error_of(last) == error
            if raises and not self._ends.is_handled(inner, error):
                message = f"on line {inner.lineno}, the branch for the CPU rejects some inputs; add a CPU path for them"
                yield from self._asked(node, node.test, message, stops=True)
                return

    def _asked(
        self,
        node: ast.stmt,
        place: ast.stmt | ast.expr,
        message: str,
        last: ast.stmt | None = None,
        stops: bool = False,
    ) -> Iterator[Finding]:
        """Yield the finding of a check of a value, unless CUDA was asked for, or a kernel needs it."""
        handled = last is not None and self._ends.is_handled(last, self._ends.error_of(last))
        if handled or self.facts.is_guarded(node) or self._refusals.is_requested(node):
            return
        in_test = self._refusals.in_test(node)
        found = self.finding(place, f"{message}, or skip this test" if in_test else message)
        yield replace(found, stops=stops)

    def _needed(self, test: ast.expr, problem: str = MESSAGE) -> str:
        """Return the message for a check that is false wherever CUDA is not available."""
        compared = (part for part in ast.walk(test) if isinstance(part, ast.Compare))
        operators = [operator for each in compared if self._checks.counts(each) for operator in each.ops]
        if operators:
            is_exact = any(isinstance(each, ast.Eq | ast.NotEq) for each in operators)
            wrong = "too few or too many" if is_exact else "too few"
            return f"{problem} or there are {wrong} GPUs; check the GPU count only if CUDA is available"
        if asks_tensor(test):
            return "this check rejects CPU tensors; add a CPU path"
        return f"{problem}; add a CPU path"
