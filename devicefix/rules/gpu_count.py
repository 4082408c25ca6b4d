from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.facts import dotted, of_any_count
from devicefix.facts.values import last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule

_PROCESSES = re.compile(
    r"(^|_)(nprocs?|n_procs|num_procs|world_size|worldsize|num_processes|nproc_per_node)\Z"
)


class GpuCount(Rule):
    """
    ## What it does
    Finds `torch.cuda.device_count()` as a number of processes, a factor or a divisor.

    ## Why it matters
    It is 0 without CUDA. A program that starts 0 processes does nothing and exits successfully, a batch becomes
    empty, and a division fails.

    ## Example
    ```python
    mp.spawn(worker, nprocs=torch.cuda.device_count())
    rank = node * torch.cuda.device_count() + gpu
    ```

    ## Use instead
    ```python
    mp.spawn(worker, nprocs=max(torch.cuda.device_count(), 1))
    rank = node * max(torch.cuda.device_count(), 1) + gpu
    ```

    ## Fix safety
    Safe: with CUDA the number is the same. If the program also checks whether a number is 0, it stays, and the
    places that compute with it are fixed.
    """

    code = "DF402"
    name = "gpu-count"
    summary = "The number of GPUs, which may be 0, is used as a count"
    words = (b"cuda",)
    common_words = (b"device", b"gpu")
    INVALID = (
        Example(
            "the number of processes, by a variable",
            before="""
                import torch
                import torch.multiprocessing as mp


                def main():
                    n = torch.cuda.device_count()
                    mp.spawn(work, nprocs=n, args=(n,))
            """,
            after="""
                import torch
                import torch.multiprocessing as mp


                def main():
                    n = max(torch.cuda.device_count(), 1)
                    mp.spawn(work, nprocs=n, args=(n,))
            """,
        ),
        Example(
            "a divisor",
            before="""
                import torch

                n_gpu = torch.cuda.device_count()
                if n_gpu > 0:
                    net.cuda()
                batch = size // n_gpu
            """,
            after="""
                import torch

                n_gpu = torch.cuda.device_count()
                if n_gpu > 0:
                    net.cuda()
                batch = size // max(n_gpu, 1)
            """,
        ),
        Example(
            "a loop that starts processes",
            before="""
                import torch, subprocess

                n = torch.cuda.device_count()
                for i in range(n):
                    subprocess.Popen(line)
            """,
            after="""
                import torch, subprocess

                n = max(torch.cuda.device_count(), 1)
                for i in range(n):
                    subprocess.Popen(line)
            """,
        ),
        Example(
            "a world size with an option before it",
            before="""
                import torch

                world_size = args.n or torch.cuda.device_count()
            """,
            after="""
                import torch

                world_size = args.n or max(torch.cuda.device_count(), 1)
            """,
        ),
        Example(
            "the number of processes, by a minimum",
            before="""
                import torch

                spawn(work, nprocs=min(torch.cuda.device_count(), size))
            """,
            after="""
                import torch

                spawn(work, nprocs=min(max(torch.cuda.device_count(), 1), size))
            """,
        ),
        Example(
            "a factor",
            before="""
                import torch

                batch = 32 * torch.cuda.device_count()
            """,
            after="""
                import torch

                batch = 32 * max(torch.cuda.device_count(), 1)
            """,
        ),
        Example(
            "a world size in an attribute",
            before="""
                import torch

                args.world_size = torch.cuda.device_count()
            """,
            after="""
                import torch

                args.world_size = max(torch.cuda.device_count(), 1)
            """,
        ),
    )
    VALID = (
        Example(
            "a comparison",
            """
                import torch

                if torch.cuda.device_count() > 1:
                    net = torch.nn.DataParallel(net)
            """,
        ),
        Example(
            "a number that is printed",
            """
                import torch

                n = torch.cuda.device_count()
                print(n)
            """,
        ),
        Example(
            "at least one already",
            """
                import torch

                batch = 32 * max(1, torch.cuda.device_count())
            """,
        ),
        Example(
            "under a guard",
            """
                import torch

                if torch.cuda.is_available():
                    batch = size // torch.cuda.device_count()
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._known: dict[str, tuple[bool, list[ast.expr]]] = {}

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not self.facts.call(node, "torch.cuda.device_count") or self.facts.is_guarded(node):
            return
        if self._counts(node):
            yield self._found(node)
            return
        parent = self.facts.tree.parents.get(node)
        if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
            return
        path = dotted(parent.targets[0])
        if path is None:
            return
        known = path in self._known
        if not known:
            self._known[path] = self._counted(path)
        asked, counting = self._known[path]
        if not asked and counting:
            yield self._found(node)
        elif not known:
            yield from map(self._found, counting)

    def _found(self, node: ast.expr) -> Finding:
        edit = Edit(*self.context.source.span(node), lambda text: f"max({text}, 1)")
        return self.finding(node, "the number of GPUs is 0 without CUDA; use at least 1", Fix((edit,)))

    def _counted(self, path: str) -> tuple[bool, list[ast.expr]]:
        """Return whether the module checks that a number is 0, and where it uses the number as a count.

        A parameter of the same name counts as the same number.
        """
        uses = self.facts.tree.reads(path)
        counting = [use for use in uses if self._counts(use) and not self.facts.is_guarded(use)]
        return any(map(self._asks, uses)), counting

    def _counts(self, node: ast.expr) -> bool:
        """Return whether a node is used as a number of processes, a factor or a divisor."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Call) and last_name(parent.func) == "min":
            return self._counts(parent)
        if isinstance(parent, ast.Call) and last_name(parent.func) == "range":
            return self._starts_processes(self.facts.tree.parents.get(parent))
        if isinstance(parent, (ast.BoolOp, ast.IfExp)):
            return self._counts(parent)
        if isinstance(parent, ast.Assign):
            return bool(_PROCESSES.search(last_name(parent.targets[0])))
        if isinstance(parent, ast.keyword):
            return parent.arg is not None and bool(_PROCESSES.search(parent.arg))
        if isinstance(parent, ast.BinOp):
            divides = isinstance(parent.op, (ast.Div, ast.FloorDiv, ast.Mod)) and parent.right is node
            return divides or (isinstance(parent.op, ast.Mult) and not isinstance(parent.left, ast.List))
        return False

    def _starts_processes(self, node: ast.AST | None) -> bool:
        """Return whether a loop starts a process in every iteration."""
        return isinstance(node, ast.For) and any(
            isinstance(inner, ast.Call) and last_name(inner.func) in ("Popen", "Process")
            for statement in node.body
            for inner in ast.walk(statement)
        )

    def _asks(self, node: ast.expr) -> bool:
        """Return whether a node is used to check that a number is 0."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Compare):
            other = parent.comparators[0]
            return (
                isinstance(other, ast.Constant)
                and isinstance(other.value, int)
                and of_any_count(parent.ops[0], other.value) is not None
            )
        return isinstance(parent, (ast.If, ast.IfExp, ast.BoolOp, ast.While)) or (
            isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
        )
