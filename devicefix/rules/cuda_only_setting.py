from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.values import is_constant
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.torch_facts import CAPTURABLE

_PROFILER = "torch.profiler.profile"
_ACTIVITY = "torch.profiler.ProfilerActivity.CUDA"


class CudaOnlySetting(Rule):
    """
    ## What it does
    Finds torch settings that fail on a CPU: optimizers with `capturable=True` but without `fused=True`, and profilers
    that record only CUDA activity.

    ## Why it matters
    On a CPU, the `step()` method of a capturable optimizer raises an `AssertionError`, as does a profiler that records
    only CUDA activity (torch 2.13).

    ## Example
    ```python
    optimizer = torch.optim.Adam(net.parameters(), capturable=True)
    ```

    ## Use instead
    ```python
    optimizer = torch.optim.Adam(net.parameters(), capturable=torch.cuda.is_available())
    ```

    ## Fix safety
    For `capturable`, the fix is usually safe: with CUDA, the value is still `True`. With `foreach`, the fix is unsafe
    if the learning rate may be a tensor, which `Adam` and `AdamW` accept only if they are capturable.

    Profilers have no fix.
    """

    code = "DF411"
    name = "cuda-only-setting"
    summary = "A torch setting fails on a CPU"
    references = (*CAPTURABLE, _PROFILER)
    words = (b"capturable", b"ProfilerActivity.CUDA")
    common_words = (b"profile",)
    INVALID = (
        Example(
            "an optimizer that can be captured in a graph",
            before="""
                import torch

                optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, capturable=True)
            """,
            after="""
                import torch

                optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, capturable=torch.cuda.is_available())
            """,
        ),
        Example(
            "a learning rate that may be a tensor",
            before="""
                import torch

                optimizer = torch.optim.Adam(net.parameters(), lr, foreach=True, capturable=True)
            """,
            after="""
                import torch

                optimizer = torch.optim.Adam(net.parameters(), lr, foreach=True, capturable=torch.cuda.is_available())
            """,
            unsafe=True,
        ),
        Example(
            "a profiler of CUDA alone",
            before="""
                import torch
                from torch.profiler import ProfilerActivity

                with torch.profiler.profile(activities=[ProfilerActivity.CUDA]):
                    net(x)
            """,
        ),
    )
    VALID = (
        Example(
            "settings that a CPU accepts",
            """
                import torch

                optimizer = torch.optim.Adam(net.parameters(), fused=True, capturable=False)
                other = torch.optim.Adam(net.parameters(), fused=True, capturable=True)
                activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
                with torch.profiler.profile(activities=activities):
                    x = torch.rand(1)
                with torch.profiler.profile(activities=[*activities, torch.profiler.ProfilerActivity.CUDA]):
                    x = torch.rand(1)
            """,
        ),
        Example(
            "under a guard",
            """
                import torch

                if torch.cuda.is_available():
                    optimizer = torch.optim.Adam(net.parameters(), capturable=True)
            """,
        ),
    )

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        call = self.facts.tree.call_of(node)
        if call is not None and not self.facts.is_guarded(node):
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            if name == _PROFILER:
                yield from self._check_activities(call, given.get("activities"))
            elif is_constant(given.get("capturable"), True) and not is_constant(given.get("fused"), True):
                yield self._capturable(call, given)

    def _check_activities(self, call: ast.Call, activities: ast.expr | None) -> Iterator[Finding]:
        """Check what a profiler records."""
        parts = activities.elts if isinstance(activities, (ast.List, ast.Tuple, ast.Set)) else []
        if parts and all(self.facts.resolve(part) == _ACTIVITY for part in parts):
            message = "`ProfilerActivity.CUDA` alone raises an error on a CPU; add `ProfilerActivity.CPU`"
            yield self.finding(call, message)

    def _capturable(self, call: ast.Call, given: dict[str | None, ast.expr]) -> Finding:
        """Return the finding of an optimizer that is capturable."""
        flag = given["capturable"]
        is_for_any = self.context.accelerator is not None
        available = self.devices.beyond_mps(flag) if is_for_any else self.devices.available(flag)
        why = "`False` may raise an error if `lr` is a tensor" if _may_refuse(call, given) else ""
        where = "a CPU and on MPS" if is_for_any else "a CPU"
        message = f"`capturable=True` raises an error on {where}; use `False` there"
        return self.finding(flag, message, self.context.replace(flag, available, why))


def _may_refuse(call: ast.Call, given: dict[str | None, ast.expr]) -> bool:
    """Return whether an optimizer may need to be capturable: with a tensor as learning rate, and `foreach`."""
    rate = call.args[1] if len(call.args) > 1 else given.get("lr")
    foreach = given.get("foreach")
    is_number = (rate is None and None not in given) or isinstance(rate, ast.Constant)
    is_off = foreach is None or (isinstance(foreach, ast.Constant) and not foreach.value)
    return not is_number and not (is_off and None not in given)
