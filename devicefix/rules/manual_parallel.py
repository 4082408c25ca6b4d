from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from operator import attrgetter

from devicefix.model import Finding
from devicefix.rules.base import Example, Rule

_FUNCTIONS = re.compile(
    r"torch\.nn\.parallel\.((replicate|parallel_apply|data_parallel)(\.\w+)?|scatter|gather"
    r"|scatter_gather\.(scatter|gather|scatter_kwargs)|scatter_kwargs|_functions\.\w+\.apply|comm\.\w+)"
)
_WORDS = (
    "replicate", "parallel_apply", "data_parallel", "scatter", "gather", "scatter_kwargs", "_functions", "comm",
)  # fmt: skip
_CHOSEN = re.compile(r"gpu|device_?ids|devices|parallel|world_size", re.I)


class ManualParallel(Rule):
    """
    ## What it does
    Finds direct calls to the `torch.nn.parallel` functions `replicate`, `scatter`, `gather`, `parallel_apply` and
    `data_parallel`. If a function in your program contains several of these calls, the rule reports only the first.

    ## Why it matters
    These functions distribute work over several GPUs. Without CUDA, they raise errors such as "Broadcast function not
    implemented for CPU tensors" or "device type could not be determined".

    ## Example
    ```python
    replicas = replicate(model, device_ids)
    outputs = parallel_apply(replicas, scatter(batch, device_ids))
    return gather(outputs, device_ids[0])
    ```

    ## Use instead
    Before the calls, add:

    ```python
    if len(device_ids) < 2:
        return model(batch)
    ```

    Alternatively, use `DistributedDataParallel` or `torch.nn.DataParallel(model)`. Without a GPU, `DataParallel` calls
    the model directly.

    ## Fix safety
    There is no fix: how to call the model depends on the program.
    """

    code = "DF903"
    name = "manual-parallel"
    summary = "Work is distributed over several GPUs manually"
    words = (b"data_parallel", b"parallel_apply", b"nn.parallel")
    common_words = (b"replicate", b"scatter", b"gather")
    INVALID = (
        Example(
            "replicate, scatter, parallel_apply and gather",
            before="""
                import torch
                from torch.nn.parallel import gather, parallel_apply, replicate, scatter


                def run(model, x, ids):
                    outputs = parallel_apply(replicate(model, ids), scatter(x, ids))
                    return gather(outputs, 0)
            """,
        ),
        Example(
            "data_parallel",
            before="""
                import torch.nn as nn


                def run(model, x):
                    return nn.parallel.data_parallel(model, (x,))
            """,
        ),
        Example(
            "under another name",
            before="""
                from torch.nn.parallel import data_parallel as run

                y = run(model, (x,))
            """,
        ),
    )
    VALID = (
        Example(
            "a subclass of DataParallel",
            """
                import torch
                from torch.nn.parallel import DataParallel
                from torch.nn.parallel.scatter_gather import scatter_kwargs


                class Parallel(DataParallel):
                    def scatter(self, inputs, kwargs, device_ids):
                        return scatter_kwargs(inputs, kwargs, device_ids)
            """,
        ),
        Example(
            "with several GPUs only",
            """
                from torch.nn.parallel import data_parallel


                def run(model, x, ngpu):
                    return data_parallel(model, x, range(ngpu)) if ngpu > 1 else model(x)
            """,
        ),
        Example(
            "gather of a tensor",
            """
                import torch

                y = torch.gather(x, 1, index)
            """,
        ),
        Example(
            "gather of torch.distributed",
            """
                import torch.distributed as dist

                dist.gather(x, xs)
            """,
        ),
    )

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        if "parallel" not in self.context.source.text:
            return
        names = [*_WORDS, *self._renamed()]
        reported: set[ast.AST] = set()
        calls = (call for call in self.facts.tree.nodes_with(*names) if isinstance(call, ast.Call))
        for call in sorted(calls, key=attrgetter("lineno")):
            if not _FUNCTIONS.fullmatch(self.facts.resolve(call.func) or ""):
                continue
            function = self._function(call)
            if function not in reported and not self._chosen(call):
                reported.add(function)
                called = self.context.source.code(call.func)
                yield self.finding(
                    call,
                    f"`{called}(...)` distributes work over GPUs and raises an error without CUDA; call the model"
                    " directly if there are fewer than two GPUs, or use `DataParallel`, which does this automatically",
                )

    def _renamed(self) -> Iterator[str]:
        """Yield the names under which such functions are imported with `as`."""
        aliases = (alias for statement in self.facts.tree.imports for alias in statement.names)
        yield from (alias.asname for alias in aliases if alias.asname and alias.name in _WORDS)

    def _function(self, node: ast.AST) -> ast.AST:
        """Return the function that a node is part of, or the module."""
        for _, parent in self.facts.tree.ancestors(node):
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return parent
        return self.facts.tree.module

    def _chosen(self, node: ast.AST) -> bool:
        """Return whether the program checks the number of GPUs first."""
        if self.facts.is_guarded(node):
            return True
        for child, parent in self.facts.tree.ancestors(node):
            if isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test:
                if _CHOSEN.search(self.context.source.code(parent.test)):
                    return True
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and self._leaves_first(
                parent, node
            ):
                return True
            if isinstance(parent, ast.ClassDef) and self._passes_through(parent):
                return True
        return False

    def _leaves_first(self, function: ast.FunctionDef | ast.AsyncFunctionDef, node: ast.AST) -> bool:
        """Return whether a function returns before it reaches a node if there are no GPUs."""
        return any(
            isinstance(statement, ast.If)
            and isinstance(statement.body[-1], ast.Return)
            and statement.lineno < getattr(node, "lineno", 0)
            and _CHOSEN.search(self.context.source.code(statement.test))
            and isinstance(statement.test, (ast.UnaryOp, ast.Compare, ast.BoolOp))
            for statement in function.body
        )

    def _passes_through(self, node: ast.ClassDef) -> bool:
        """Return whether a class calls its module directly without GPUs, as DataParallel does."""
        forward = next(
            (
                statement
                for statement in node.body
                if isinstance(statement, ast.FunctionDef) and statement.name == "forward"
            ),
            None,
        )
        if forward is None:
            return any("DataParallel" in ast.unparse(base) for base in node.bases)
        return self._leaves_first(forward, forward.body[-1])
