from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from devicefix.devices.accelerator import NEWEST
from devicefix.facts.exports import has_low_precision
from devicefix.facts.precision import Precision, Tensor
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule

_NEVER = (99, 0)
_FFT = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "fftn", "ifftn", "rfftn")
# The first torch that has an operation in a type on a CPU, of those that a GPU has: measured with torch 2.2, 2.6
# and 2.13. https://docs.pytorch.org/docs/stable/generated/torch.fft.fft.html: CUDA has float16, but no bfloat16.
_SINCE = {
    "float16": {
        **{f"torch.fft.{name}": _NEVER for name in _FFT},
        **dict.fromkeys(("torch.stft", "avg_pool3d", "local_response_norm", "multi_margin_loss"), _NEVER),
        **dict.fromkeys(("layer_norm", "avg_pool1d", "avg_pool2d", "interpolate", "grid_sample"), (2, 6)),
        **dict.fromkeys(("cross_entropy", "nll_loss", "binary_cross_entropy"), (2, 6)),
        "torch.trace": (2, 13),
    },
    "bfloat16": {
        **dict.fromkeys(("avg_pool3d", "local_response_norm", "multi_margin_loss"), _NEVER),
        **dict.fromkeys(("grid_sample", "mse_loss", "binary_cross_entropy"), (2, 6)),
        "torch.trace": (2, 13),
    },
}
_NAMES = {name for names in _SINCE.values() for name in names}


class HalfOnCpu(Rule):
    """
    ## What it does
    Reports operations on tensors in half precision or bfloat16 that a GPU has and a CPU does not, such as
    `torch.fft.fft`, `torch.stft` and `avg_pool3d`.

    ## Why it matters
    The call raises an error on a CPU: `"avg_pool3d_out_frame" not implemented for 'Half'`, `Unsupported dtype Half`.

    ## Example
    ```python
    spectrum = torch.fft.rfft(signal.half())
    ```

    ## Use instead
    ```python
    signal = signal.half() if torch.cuda.is_available() else signal.float()
    spectrum = torch.fft.rfft(signal)
    ```

    ## Fix safety
    There is no fix: the type of the result would change, too, and what it is used for would have to agree.

    `torch-version` is the oldest torch that the program must run with. By default it is the newest, where few
    operations are missing; before torch 2.6 there are more, such as `layer_norm` and `interpolate`. Operations that
    a GPU does not have either, such as `torch.linalg.inv` and `torch.quantile`, are not reported. Only calls are
    reported whose tensor the file shows to be in low precision.
    """

    code = "DF412"
    name = "half-on-cpu"
    summary = "An operation that a CPU does not have in low precision"
    companions = (b"alf", b"loat16")  # of `half`, `Half`, `float16` and `BFloat16`
    words = (b".fft.", b"stft", b"avg_pool3d", b"local_response_norm", b"multi_margin_loss")
    common_words = tuple(name.rpartition(".")[2].encode() for name in sorted(_NAMES) if "fft" not in name)
    INVALID = (
        Example(
            "a Fourier transform",
            before="""
                import torch

                net = torch.nn.Linear(8, 8).cuda().half()
                y = net(torch.ones(4, 8, dtype=torch.half, device=net.weight.device))
                print(torch.fft.rfft(y, dim=0).abs())
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                net = torch.nn.Linear(8, 8).to(device).half()
                y = net(torch.ones(4, 8, dtype=torch.half, device=net.weight.device))
                print(torch.fft.rfft(y, dim=0).abs())
            """,
        ),
        Example(
            "an operation in a class",
            before="""
                import torch
                from torch.nn import functional as F


                class Video(torch.nn.Module):
                    def pooled(self, frames):
                        frames = frames.to(dtype=torch.bfloat16)
                        return F.avg_pool3d(frames, 2)
            """,
        ),
    )
    VALID = (
        Example(
            "float32",
            """
                import torch

                y = net.half()(x)
                print(torch.fft.rfft(y.float()), torch.nn.functional.avg_pool3d(x, 2))
            """,
        ),
        Example(
            "what the newest torch has",
            """
                import torch

                y = torch.nn.functional.layer_norm(torch.ones(2, 4).half(), (4,))
            """,
        ),
        Example(
            "with CUDA only",
            """
                import torch

                if torch.cuda.is_available():
                    print(torch.fft.rfft(x.half()))
            """,
        ),
        Example(
            "under autocast, which casts",
            """
                import torch

                with torch.autocast(device.type, dtype=torch.float16):  # cuda
                    print(torch.fft.rfft(x.half()))
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not node.args or not self._is_low:
            return
        name = (self.facts.resolve(node.func) or "").removeprefix("torch.nn.functional.")
        if name not in _NAMES or self.facts.is_guarded(node):
            return
        value = self._precision.value(node.args[0])
        dtype = value.dtype if isinstance(value, Tensor) else ""
        since = _SINCE.get(dtype, {}).get(name)
        version = self.context.options.torch_version or NEWEST
        if since is not None and version < since and not self._is_cast(node):
            when = "" if since is _NEVER else f" before torch {since[0]}.{since[1]}"
            yield self.finding(node, f"`{name}` has no {dtype} on a CPU{when}; use float32 there")

    @cached_property
    def _is_low(self) -> bool:
        """Return whether the module has low precision."""
        return has_low_precision(self.context.source.text.encode())

    @cached_property
    def _precision(self) -> Precision:
        return Precision(self.facts)

    def _is_cast(self, node: ast.Call) -> bool:
        """Return whether a call is under a context that may cast its operands."""
        return any(
            isinstance(item.context_expr, ast.Call)
            and "autocast" in (self.facts.resolve(item.context_expr.func) or "")
            for _, parent in self.facts.tree.ancestors(node)
            if isinstance(parent, (ast.With, ast.AsyncWith))
            for item in parent.items
        )
