from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.values import last_name
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.torch_facts import DISTRIBUTED


class NcclObject(Rule):
    """
    ## What it does
    Finds uses of `ProcessGroupNCCL` and of `bf16_compress_hook`, the communication hook that compresses gradients to
    bfloat16.

    ## Why it matters
    In CPU builds of torch, `ProcessGroupNCCL` does not exist and registering the hook raises an error.

    ## Example
    ```python
    net.register_comm_hook(None, default_hooks.bf16_compress_hook)
    ```

    ## Use instead
    ```python
    if torch.cuda.is_available():
        net.register_comm_hook(None, default_hooks.bf16_compress_hook)
    ```

    ## Fix safety
    There is no fix. Put the class or the hook, and all code that uses it, under a check for CUDA.
    """

    code = "DF416"
    name = "nccl-object"
    summary = "`ProcessGroupNCCL` or `bf16_compress_hook` fails in CPU builds of torch"
    references = tuple(DISTRIBUTED)
    INVALID = (
        Example(
            "gradients in bfloat16",
            before="""
                from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

                net.register_comm_hook(None, default_hooks.bf16_compress_hook)
            """,
        ),
        Example(
            "options of NCCL",
            before="""
                import torch.distributed as dist

                options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
            """,
        ),
    )
    VALID = (
        Example(
            "with CUDA only",
            """
                import torch
                import torch.distributed as dist
                from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

                if torch.cuda.is_available():
                    net.register_comm_hook(None, default_hooks.bf16_compress_hook)
                    options = dist.ProcessGroupNCCL.Options()
                net.register_comm_hook(None, default_hooks.allreduce_hook)
            """,
        ),
    )

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        if not self.facts.is_guarded(node):
            message = DISTRIBUTED[name].format(last_name(node))
            yield self.finding(node, message, unless="because the code that uses it has to change, too")
