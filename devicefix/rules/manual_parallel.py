from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.facts.values import last_name
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule

_PARALLEL = "torch.nn.parallel"
_NAMES = ("replicate", "parallel_apply", "data_parallel", "scatter", "gather", "scatter_kwargs")
_COMM = ("broadcast", "broadcast_coalesced", "reduce_add", "scatter", "gather")
_PROBLEM = "is for several GPUs and raises an error without CUDA"
_FEW = "if there are fewer than two GPUs"
_CHOSEN = re.compile(r"gpu|device_?ids|devices|parallel|world_size", re.I)


class ManualParallel(Rule):
    """
    ## What it does
    Finds direct calls to the `torch.nn.parallel` functions `replicate`, `scatter`, `gather`, `parallel_apply` and
    `data_parallel`.

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
    There is no fix, because the replacement depends on the program.
    """

    code = "DF903"
    name = "manual-parallel"
    summary = "Work is distributed over several GPUs manually"
    words = (b"data_parallel", b"parallel_apply", b"nn.parallel")
    common_words = (b"parallel", b"replicate", b"scatter", b"gather")
    references = (
        *(f"{_PARALLEL}.{module}{name}" for name in _NAMES for module in ("", f"{name}.", "scatter_gather.")),
        *(f"{_PARALLEL}.comm.{name}" for name in _COMM),
    )
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

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._reported: set[ast.AST] = set()

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        call = self.facts.tree.call_of(node)
        function = self.facts.tree.scope(node).node
        if call is not None and function not in self._reported and not self._is_chosen(node):
            self._reported.add(function)  # one finding for what belongs together
            called = self.context.source.code(node)
            is_step = name.startswith(f"{_PARALLEL}.comm.")
            advice = (
                f"skip it {_FEW}" if is_step else f"call the model directly {_FEW}, or use `DataParallel`"
            )
            yield self.finding(call, f"`{called}(...)` {_PROBLEM}; {advice}")

    def _is_chosen(self, node: ast.expr) -> bool:
        """Return whether the program checks the number of GPUs first, or is part of a `DataParallel`."""
        around = self.facts.tree.ancestors(node)
        return self.facts.is_guarded(node) or any(self._chooses(*each, node.lineno) for each in around)

    def _chooses(self, child: ast.AST, parent: ast.AST, line: int) -> bool:
        match parent:
            case ast.If(test=test) | ast.IfExp(test=test):
                return child is not test and self._asks(test)
            case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
                left = (each for each in body if isinstance(each, ast.If) and each.lineno < line)
                return any(isinstance(each.body[-1], ast.Return) and self._asks(each.test) for each in left)
            case ast.ClassDef(bases=bases, body=body):
                own = any(isinstance(each, ast.FunctionDef) and each.name == "forward" for each in body)
                return not own and any(last_name(base).endswith("DataParallel") for base in bases)
        return False

    def _asks(self, test: ast.expr) -> bool:
        return _CHOSEN.search(self.context.source.code(test)) is not None
