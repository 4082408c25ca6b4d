from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.arguments import gpu_number
from devicefix.facts.flow.kinds import NUMBERS
from devicefix.facts.values import last_name
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule

_FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"


class ShardedParameters(Rule):
    """
    ## What it does
    Finds calls to `FullyShardedDataParallel` that omit `device_id`, pass a GPU index as `device_id` or set
    `sync_module_states=True`.

    ## Why it matters
    Unless `device_id` is a device, `FullyShardedDataParallel` needs an accelerator. With `sync_module_states=True`, it
    always needs one.

    ## Example
    ```python
    net = FullyShardedDataParallel(net, device_id=torch.cuda.current_device())
    ```

    ## Use instead
    ```python
    net = FullyShardedDataParallel(net, device_id=torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    ```

    ## Fix safety
    There is no fix: programs often choose the GPU for a process elsewhere in the code.
    """

    code = "DF415"
    name = "sharded-parameters"
    summary = "Parameters can be sharded only over GPUs"
    before = ("DF401",)
    references = (_FSDP,)
    INVALID = (
        Example(
            "parameters that are sharded over GPUs",
            before="""
                from functools import partial
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                wrap = partial(FSDP, device_id=int(rank))
                net = FSDP(net, use_orig_params=True)
            """,
        ),
        Example(
            "parameters that are sharded over the current GPU",
            before="""
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                net = FSDP(net, device_id=torch.cuda.current_device())
            """,
        ),
        Example(
            "parameters that are sharded over the GPU of a process",
            before="""
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


                def work(rank, n):
                    torch.cuda.manual_seed(n)
                    net = FSDP(net, device_id=rank)


                torch.multiprocessing.spawn(work, args=(2,), nprocs=2)
            """,
        ),
        Example(
            "states that are synchronized over GPUs",
            before="""
                from torch.distributed.fsdp import FullyShardedDataParallel

                net = FullyShardedDataParallel(net, device_id=device, sync_module_states=True)
            """,
        ),
    )
    VALID = (
        Example(
            "parameters that are sharded over a device",
            """
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                net = FSDP(net, device_id=device)
                other = FSDP(net, device_id=args.device)
                last = FSDP(net, **options)
                print(isinstance(net, FSDP))
            """,
        ),
    )

    def visit_reference(self, node: ast.Name | ast.Attribute, _name: str) -> Iterator[Finding]:
        call = self.facts.tree.parents[node]
        if not isinstance(call, ast.Call) or self.facts.is_guarded(node):
            return
        if call.func is not node and not self.facts.call(call, "functools.partial"):
            return
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        where, synchronized = given.get("device_id"), given.get("sync_module_states")
        if None not in given and (where is None or self._is_number(where)):
            self.context.mark_handled(*filter(None, (where,)))
            message = f"`{last_name(node)}` needs an accelerator unless `device_id` is a device; pass a `torch.device`"
            yield self.finding(node, message, unless="because the GPU of a process may be chosen elsewhere")
        elif isinstance(synchronized, ast.Constant) and synchronized.value is True:
            message = "`sync_module_states=True` needs an accelerator; use it only if CUDA is available"
            yield self.finding(node, message, unless="because processes would start with different weights")

    def _is_number(self, where: ast.expr) -> bool:
        """Return whether an expression is, or may be, the number of a GPU."""
        return self.facts.kinds.of(where).are(NUMBERS) or gpu_number(self.context, where) is not None
