from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.values import last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule

_WRAPPERS = ("DistributedDataParallel", "DDP")


class DeviceIds(Rule):
    """
    ## What it does
    Finds `device_ids` and `output_device` of `DistributedDataParallel`, and `device_ids` of `barrier`.

    ## Why it matters
    On a CPU both must be None: "DistributedDataParallel device_ids and output_device arguments only work with
    single-device/multiple-device GPU modules".

    ## Example
    ```python
    model = DistributedDataParallel(model, device_ids=[rank], output_device=rank)
    ```

    ## Use instead
    ```python
    model = DistributedDataParallel(
        model,
        device_ids=[rank] if torch.cuda.is_available() else None,
        output_device=rank if torch.cuda.is_available() else None,
    )
    ```

    ## Fix safety
    Safe: with CUDA the arguments are the same. `DataParallel` is left alone: on a CPU it calls the model directly.
    """

    code = "DF602"
    name = "device-ids"
    summary = "`DistributedDataParallel` gets device IDs"
    words = (b"DistributedDataParallel",)
    common_words = (b"device",)
    INVALID = (
        Example(
            "both keywords",
            before="""
                import torch
                from torch.nn.parallel import DistributedDataParallel as DDP

                net = DDP(net, device_ids=[rank], output_device=rank)
            """,
            after="""
                import torch
                from torch.nn.parallel import DistributedDataParallel as DDP

                net = DDP(net, device_ids=[rank] if torch.cuda.is_available() else None, output_device=rank if torch.cuda.is_available() else None)
            """,
        ),
        Example(
            "a dictionary of options",
            before="""
                import torch

                options = {'device_ids': [rank]}
                cuda = 1
            """,
            after="""
                import torch

                options = {'device_ids': [rank] if torch.cuda.is_available() else None}
                cuda = 1
            """,
        ),
        Example(
            "device_ids by position",
            before="""
                import torch

                net = torch.nn.parallel.DistributedDataParallel(net, [gpu])
            """,
            after="""
                import torch

                net = torch.nn.parallel.DistributedDataParallel(net, [gpu] if torch.cuda.is_available() else None)
            """,
        ),
    )
    VALID = (
        Example(
            "DataParallel",
            """
                import torch

                net = torch.nn.DataParallel(net, device_ids=[0, 1])
            """,
        ),
        Example(
            "None",
            """
                import torch

                net = torch.nn.parallel.DistributedDataParallel(net, device_ids=None)
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        name = self.facts.resolve(node.func) or ""
        wraps = name.endswith(_WRAPPERS) or last_name(node.func) in _WRAPPERS
        if not (wraps or name == "torch.distributed.barrier") or self.facts.is_guarded(node):
            return
        values = [
            keyword.value for keyword in node.keywords if keyword.arg in ("device_ids", "output_device")
        ]
        if wraps:
            values += node.args[1:3]
        values = [value for value in values if not self._settled(value)]
        if values:
            self.context.mark_handled(*values)
            fixes = [self.context.when_cuda(value, "None") for value in values]
            edits: tuple[Edit, ...] = tuple(edit for fix in fixes for edit in fix.edits)
            needs = frozenset().union(*(fix.needs for fix in fixes))
            message = "`device_ids` and `output_device` must be None on a CPU; pass them only with CUDA"
            yield self.finding(node, message, Fix(edits, needs=needs))

    def visit_Dict(self, node: ast.Dict) -> Iterator[Finding]:
        """Check a dictionary of arguments, which may be passed as `**options`."""
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "device_ids" and isinstance(value, ast.List):
                if not self.facts.is_guarded(value):
                    fix = self.context.when_cuda(value, "None")
                    yield self.finding(
                        value, "`device_ids` must be None on a CPU; pass it only with CUDA", fix
                    )

    def _settled(self, value: ast.expr) -> bool:
        """Return whether an argument is None, or None without CUDA."""
        if isinstance(value, ast.IfExp):
            return self.facts.guards.implies(value.test) or self.facts.guards.implies(value.test, False)
        return isinstance(value, (ast.Constant, ast.Starred)) and getattr(value, "value", 0) is None
