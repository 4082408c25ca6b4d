from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.accelerator import FORKS
from devicefix.devices.context import Context
from devicefix.devices.device_types import TYPED
from devicefix.facts.texts import text_of
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule

_ACTIVITY = "torch.profiler.ProfilerActivity"
_GPU_DTYPE = "torch.get_autocast_gpu_dtype"


class DeviceType(Rule):
    """
    ## What it does
    With `--target accelerator`, finds calls whose device type is CUDA, explicitly or by default, such as
    `torch.autocast("cuda")` and `torch.amp.GradScaler()`.

    ## Why it matters
    On any other accelerator, torch disables CUDA autocast and CUDA gradient scalers, so the program trains at a
    different precision.

    ## Example
    ```python
    scaler = torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x)
    ```

    ## Use instead
    ```python
    scaler = torch.amp.GradScaler(device.type, enabled=device.type != "cpu")
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type != "cpu"):
        loss = model(x)
    ```

    ## Fix safety
    The fix is safe. On a CPU, `autocast("cuda")` and `GradScaler("cuda")` are off, and the fix keeps them off. `DF407`
    finds code that may need autocast on a CPU.

    With the fix for `torch.get_autocast_gpu_dtype()`, the result on a CPU is still CUDA's dtype. The fix replaces a
    list, tuple or set of `ProfilerActivity.CPU` and `ProfilerActivity.CUDA` with
    `torch.profiler.supported_activities()`. Other uses of `ProfilerActivity.CUDA` have no fix.
    """

    code = "DF408"
    name = "device-type"
    summary = "A call or option applies only to CUDA"
    targets = ("accelerator",)
    words = (b"autocast", b"GradScaler", b"custom_fwd", b"custom_bwd", b"ProfilerActivity", b"fork_rng")
    references = (*TYPED, *FORKS, _GPU_DTYPE, f"{_ACTIVITY}.CUDA")
    fails = False
    INVALID = (
        Example(
            "the type as an argument and by default",
            before="""
                import torch

                scaler = torch.amp.GradScaler(init_scale=1024.0)
                with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
                    y = net(x)
                with torch.amp.autocast("cuda", torch.bfloat16, args.amp or args.half):
                    y = net(x)
            """,
            after="""
                import torch

                device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")

                scaler = torch.amp.GradScaler(device.type, init_scale=1024.0, enabled=device.type != "cpu")
                with torch.autocast(device_type=device.type, dtype=torch.bfloat16, enabled=device.type != "cpu"):
                    y = net(x)
                with torch.amp.autocast(device.type, torch.bfloat16, (args.amp or args.half) and device.type != "cpu"):
                    y = net(x)
            """,
        ),
        Example(
            "off in any case, and with arguments in a dictionary",
            before="""
                import torch

                with torch.autocast("cuda", enabled=False):
                    y = net(x)
                with torch.autocast("cuda", **options):
                    y = net(x)
            """,
            after="""
                import torch

                device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")

                with torch.autocast(device.type, enabled=False):
                    y = net(x)
                with torch.autocast(
                    torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cuda", **options
                ):
                    y = net(x)
            """,
        ),
        Example(
            "the state and the dtype of autocast",
            before="""
                import torch

                if torch.is_autocast_enabled():
                    x = x.to(torch.get_autocast_gpu_dtype())
            """,
            after="""
                import torch

                device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")

                if torch.is_autocast_enabled(device.type):
                    x = x.to(torch.get_autocast_dtype(
                        torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cuda"
                    ))
            """,
        ),
        Example(
            "a function with a gradient of its own",
            before="""
                import torch


                class Double(torch.autograd.Function):
                    @staticmethod
                    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
                    def forward(ctx, x):
                        return x * 2
            """,
            after="""
                import torch

                device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")


                class Double(torch.autograd.Function):
                    @staticmethod
                    @torch.amp.custom_fwd(device_type=device.type, cast_inputs=torch.float32)
                    def forward(ctx, x):
                        return x * 2
            """,
        ),
        Example(
            "the activities of a profiler",
            before="""
                from torch.profiler import ProfilerActivity, profile

                with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
                    run()
            """,
            after="""
                import torch
                from torch.profiler import ProfilerActivity, profile

                with profile(activities=torch.profiler.supported_activities()) as prof:
                    run()
            """,
        ),
        Example(
            "a single activity",
            before="""
                import torch

                activity = torch.profiler.ProfilerActivity.CUDA
            """,
        ),
    )
    VALID = (
        Example(
            "the type of the device",
            """
                import torch

                with torch.autocast(device.type, dtype=torch.bfloat16):
                    y = net(x)
                scaler = torch.amp.GradScaler(device.type)
            """,
        ),
        Example(
            "the CPU",
            """
                import torch

                with torch.autocast("cpu", dtype=torch.bfloat16):
                    y = net(x)
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        assert context.translation is not None
        self._types = context.translation.types

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        call = self.facts.tree.call_of(node)
        if name.startswith(_ACTIVITY):
            yield self._activity(node)
        elif call is None:
            yield from self._partial(node, name)
        elif call in self.context.handled:
            return
        elif name in FORKS:
            if not call.args and {each.arg for each in call.keywords}.isdisjoint(
                ("devices", "device_type", None)
            ):
                message = (
                    f"`{name}` saves the random states of CUDA devices; pass the accelerator's device type"
                )
                yield self.finding(call, message, self._types.kept(call))
        elif name == _GPU_DTYPE:
            fix = self._dtype(call)
            yield self.finding(
                call, f"`{name}` returns the dtype for CUDA; use `torch.get_autocast_dtype`", fix
            )
        elif self._types.is_cuda(call, TYPED[name]):
            fix = self._types.fix(call, TYPED[name])
            yield self.finding(
                call, f"the device type of `{name}` is CUDA; pass the accelerator's device type", fix
            )

    def _partial(self, node: ast.expr, name: str) -> Iterator[Finding]:
        """Check a function that gets its type before it is called: `partial(torch.autocast, device_type="cuda")`."""
        parent = self.facts.tree.parents.get(node)
        given = parent.keywords if isinstance(parent, ast.Call) else ()
        if any(each.arg == "device_type" and text_of(each.value) == "cuda" for each in given):
            message = f"the device type of `{name}` is CUDA; pass the accelerator's device type"
            yield self.finding(node, message, unless="because the program calls the function later")

    def _dtype(self, call: ast.Call) -> Fix:
        """Return the fix of the dtype of autocast, which is still CUDA's on a CPU."""
        torch = self.devices.torch(call)
        kind, needs = self._types.of(call, is_exact=True)
        new = f"{torch.text}.get_autocast_dtype({kind})"
        return Fix((Edit(*self.context.source.span(call), new),), needs=needs | torch.needs)

    def _activity(self, node: ast.expr) -> Finding:
        """Return the finding of an activity of CUDA: it is one of all that are supported, beside the CPU's."""
        torch, holder = self.devices.torch(node), self.facts.tree.parents.get(node)
        names = [self.facts.resolve(each) for each in getattr(holder, "elts", ())]
        message = f"`{_ACTIVITY}.CUDA` profiles only CUDA; use `torch.profiler.supported_activities()`"
        fix = None
        if isinstance(holder, ast.expr) and sorted(map(str, names)) == [
            f"{_ACTIVITY}.CPU",
            f"{_ACTIVITY}.CUDA",
        ]:
            fix = self.context.edit(holder, f"{torch.text}.profiler.supported_activities()", torch)
        return self.finding(node, message, fix)
