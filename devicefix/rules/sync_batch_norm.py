from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.model import Finding
from devicefix.rules.base import Example, Rule


class SyncBatchNorm(Rule):
    """
    ## What it does
    Finds `torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)`.

    ## Why it matters
    The converted layers raise an error on a CPU: "SyncBatchNorm layers only work with GPU modules".

    ## Example
    ```python
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    ```

    ## Use instead
    ```python
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model) if torch.cuda.is_available() else model
    ```

    ## Fix safety
    Safe: with CUDA the model is the same. On a CPU each process has its own statistics, so the numbers can differ
    from those of several GPUs, but not from those of one.
    """

    code = "DF603"
    name = "sync-batch-norm"
    summary = "Batch normalization is synchronized between GPUs"
    words = (b"SyncBatchNorm",)
    common_words = (b"batchnorm",)
    INVALID = (
        Example(
            "a model that is converted",
            before="""
                import torch
                from torch import nn

                net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
            """,
            after="""
                import torch
                from torch import nn

                net = nn.SyncBatchNorm.convert_sync_batchnorm(net) if torch.cuda.is_available() else net
            """,
        ),
    )
    VALID = (
        Example(
            "under a guard",
            """
                import torch

                if torch.cuda.is_available():
                    net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        name = self.facts.resolve(node.func) or ""
        if not name.endswith("SyncBatchNorm.convert_sync_batchnorm") or self.facts.is_guarded(node):
            return
        fix = None
        if len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
            fix = self.context.when_cuda(node, self.context.source.code(node.args[0]), of_cuda=True)
        yield self.finding(node, "`SyncBatchNorm` needs CUDA; convert the model only with CUDA", fix)
