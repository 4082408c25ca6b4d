from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.arguments import gpu_number
from devicefix.facts.flow.kinds import NUMBERS
from devicefix.facts.flow.parameters import unpacks
from devicefix.facts.flow.sinks import FSDP
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.values import is_constant, last_name
from devicefix.model import Finding, Fix
from devicefix.rewrite.operations import AddKeyword
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.device_numbers import is_fixed_where_bound

# What moves parameters off the GPU: the option that needs one, and whether it is on by default.
_OFFLOADS = {
    "torch.distributed.fsdp.CPUOffload": ("offload_params", False),
    "torch.distributed.fsdp.CPUOffloadPolicy": ("pin_memory", True),
}
_NEEDS = "needs an accelerator other than MPS; use it only if one is available"


class ShardedParameters(Rule):
    """
    ## What it does
    Finds calls to `FullyShardedDataParallel` that omit `device_id`, pass a GPU index as `device_id`, or set
    `sync_module_states=True`. Also finds code that offloads parameters from a GPU or to pinned memory.

    ## Why it matters
    Unless `device_id` is the CPU, `FullyShardedDataParallel` needs an accelerator. With `sync_module_states=True` or
    `CPUOffload(offload_params=True)`, it always needs one. `CPUOffloadPolicy` pins memory by default, which also needs
    one.

    ## Example
    ```python
    net = FullyShardedDataParallel(net, device_id=rank)
    ```

    ## Use instead
    ```python
    net = FullyShardedDataParallel(net, device_id=rank if torch.cuda.is_available() else torch.device("cpu"))
    ```

    ## Fix safety
    The fix for `device_id` is usually safe: with CUDA, the argument is the same as before. The fix for offloading is safe too:
    on a CPU, there is nothing to offload.

    The fix for `sync_module_states` is unsafe: without CUDA, the states are not synchronized, and processes may start
    with different weights.
    """

    code = "DF415"
    name = "sharded-parameters"
    summary = "FSDP or parameter offloading may need an accelerator"
    before = ("DF401",)
    references = (FSDP, *_OFFLOADS)
    INVALID = (
        Example(
            "parameters that are sharded over GPUs",
            before="""
                from functools import partial
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                wrap = partial(FSDP, device_id=int(rank))
                net = FSDP(net, use_orig_params=True)
            """,
            after="""
                from functools import partial
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                wrap = partial(FSDP, device_id=int(rank) if torch.cuda.is_available() else torch.device("cpu"))
                net = FSDP(net, use_orig_params=True, device_id=None if torch.cuda.is_available() else torch.device("cpu"))
            """,
        ),
        Example(
            "parameters that are sharded over the current GPU",
            before="""
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                net = FSDP(net, device_id=torch.cuda.current_device())
            """,
            after="""
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                net = FSDP(net, device_id=torch.cuda.current_device() if torch.cuda.is_available() else torch.device("cpu"))
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
            after="""
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


                def work(rank, n):
                    torch.cuda.manual_seed(n)
                    net = FSDP(net, device_id=rank if torch.cuda.is_available() else torch.device("cpu"))


                torch.multiprocessing.spawn(work, args=(2,), nprocs=2)
            """,
        ),
        Example(
            "parameters that are offloaded",
            before="""
                from torch.distributed.fsdp import CPUOffload, CPUOffloadPolicy

                FSDP_OPTIONS = {"cpu_offload": CPUOffload(offload_params=True)}
                pinned = CPUOffloadPolicy()
                others = CPUOffloadPolicy(pin_memory=False), CPUOffload()
            """,
            after="""
                import torch
                from torch.distributed.fsdp import CPUOffload, CPUOffloadPolicy

                FSDP_OPTIONS = {"cpu_offload": CPUOffload(offload_params=torch.cuda.is_available())}
                pinned = CPUOffloadPolicy(pin_memory=torch.cuda.is_available())
                others = CPUOffloadPolicy(pin_memory=False), CPUOffload()
            """,
        ),
        Example(
            "states that are synchronized over GPUs",
            before="""
                from torch.distributed.fsdp import FullyShardedDataParallel

                net = FullyShardedDataParallel(net, device_id=device, sync_module_states=True)
            """,
        ),
        Example(
            "states that are synchronized, and a variable that becomes the CPU",
            before="""
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


                def wrap(net, synchronized=True):
                    current = torch.cuda.current_device()
                    return FSDP(net, device_id=current, sync_module_states=synchronized)
            """,
            after="""
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


                def wrap(net, synchronized=torch.cuda.is_available()):
                    current = torch.cuda.current_device() if torch.cuda.is_available() else "cpu"
                    return FSDP(net, device_id=current, sync_module_states=synchronized)
            """,
            unsafe=True,
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

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        call = self.facts.tree.parents[node]
        if not isinstance(call, ast.Call) or self.facts.is_guarded(node):
            return
        if call.func is not node and not self.facts.call(call, "functools.partial"):
            return
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        if name in _OFFLOADS:
            yield from self._offloaded(call, *_OFFLOADS[name])
            return
        where, synchronized = given.get("device_id"), given.get("sync_module_states")
        fixed = where is not None and is_fixed_where_bound(self.context, where)
        if None not in given and not fixed and (where is None or self._is_number(where)):
            self.context.mark_handled(*filter(None, (where,)))
            message = (
                f"`{last_name(node)}` needs an accelerator unless `device_id` is the CPU; "
                'without an accelerator, pass `torch.device("cpu")`'
            )
            yield self.finding(node, message, self._fix(call, where))
        sources = Sources(self.facts, How.BOUND | How.DEFAULT, 2).of(synchronized) if synchronized else ()
        for on in (source.node for source in sources if is_constant(source.node, True)):
            message = f"`sync_module_states=True` {_NEEDS}"
            why = f"without {self._wanted}, processes may start with different weights"
            yield self.finding(
                on, message, self.context.replace(on, self.devices.available(on, pins=True), why)
            )

    def _offloaded(self, call: ast.Call, option: str, default: bool) -> Iterator[Finding]:
        """Yield the finding of an option that is on, with the fix that makes it depend on CUDA."""
        value = next((keyword.value for keyword in call.keywords if keyword.arg == option), None)
        value = call.args[0] if call.args else value
        available = self.devices.available(call, pins=True)
        if value is None and default and not unpacks(call):
            fix = self.context.edit(call, AddKeyword(option, available.text), available)
            yield self.finding(call, f"`{option}` is on by default and {_NEEDS}", fix)
        elif value is not None and is_constant(value, True):
            yield self.finding(value, f"`{option}=True` {_NEEDS}", self.context.replace(value, available))

    def _fix(self, call: ast.Call, where: ast.expr | None) -> Fix:
        """Return the fix that makes the device of a call the CPU without CUDA."""
        cpu = f'{self.devices.torch(call).text}.device("cpu")'
        if where is not None:
            return self.context.when_cuda(where, cpu)
        device = self.devices.either(call, "None", cpu)
        return self.context.edit(call, AddKeyword("device_id", device.text), device)

    def _is_number(self, where: ast.expr) -> bool:
        """Return whether an expression is, or may be, the number of a GPU."""
        return self.facts.kinds.of(where).are(NUMBERS) or gpu_number(self.context, where) is not None
