from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain

from devicefix.facts.exports import has_low_precision
from devicefix.facts.precision import Module, Precision, Tensor, Value
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared import half_facts

_NEWEST = max(half_facts.VERSIONS)
_FUNCTIONS = ("torch.nn.functional.", "torch.")
_TRANSFORM = "fft.rfft"  # all transforms fail alike
_PRODUCT = "matmul"  # what `@` computes
_CLASS_NAME = re.compile(r"\b[A-Z]\w+")


class HalfOnCpu(Rule):
    """
    ## What it does
    Finds operations that a GPU supports in float16 or bfloat16 but a CPU does not, such as `torch.fft.fft`,
    `torch.stft` and `avg_pool3d`. Also finds calls that pass a low-precision tensor to a function in another file, if
    that function applies a Fourier transform to the tensor.

    The rule reports an operation only if the file shows that its tensor is in low precision, either always or when a
    flag is set. It ignores flags that are true only with CUDA, and operations that a GPU does not support either, such
    as `torch.linalg.inv`.

    Which operations are missing depends on the torch version. Set `torch-version` to the oldest version that your
    program must support. By default, devicefix uses the version that your project pins, or else the newest version, in
    which few operations are missing. Before torch 2.3, a CPU does not support `layer_norm` or `interpolate` in float16.
    Before torch 2.2, it does not support matrix products or convolutions in float16 either.
    [Low precision on a CPU](https://devicefix.github.io/devicefix/precision/) lists the missing operations by version.

    ## Why it matters
    On a CPU, the operation raises an error such as `"avg_pool3d_out_frame" not implemented for 'Half'` or
    `Unsupported dtype Half`.

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
    There is no fix: converting the tensor to float32 would also change the dtype of the result, and you would have to
    adapt all code that uses the result.
    """

    code = "DF412"
    name = "half-on-cpu"
    summary = "An operation in low precision is not supported on a CPU"
    companions = (b"alf", b"loat16")  # of `half`, `Half`, `float16` and `BFloat16`
    words = (
        b".fft.", b"stft", b"avg_pool3d", b"AvgPool3d", b"local_response_norm", b"LocalResponseNorm", b"multi_margin_loss",
        b"MultiMarginLoss", b"multilabel_margin_loss", b"MultiLabelMarginLoss", b".half()",
    )  # fmt: skip
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
        Example(
            "a layer and a method",
            before="""
                import torch

                pool = torch.nn.AvgPool3d(2)
                x = torch.ones(1, 1, 4, 4, 4, dtype=torch.float16)
                print(pool(x), x.flatten().stft(16, return_complex=True))
            """,
        ),
        Example(
            "a tensor that a flag converts",
            before="""
                import torch


                def spectra(sounds, flag):
                    if flag:
                        sounds = sounds.half()
                    return torch.stack([torch.fft.rfft(each.unsqueeze(0)) for each in sounds])
            """,
        ),
    )
    VALID = (
        Example(
            "half precision with CUDA only, and a name that is bound anew",
            """
                import torch

                is_half = flag and torch.cuda.is_available()


                def spectra(x, y):
                    if is_half:
                        x = x.half()
                    y = y.half()
                    y = net(y)
                    return torch.fft.rfft(x), torch.fft.rfft(y)
            """,
        ),
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

    def visit_Module(self, _node: ast.Module) -> Iterator[Finding]:
        if has_low_precision(self.context.source.text.encode()):
            for node in self._nodes():
                if isinstance(node, (ast.Call, ast.BinOp)) and not self.facts.is_guarded(node):
                    yield from self._checked(node)

    def _nodes(self) -> Iterable[ast.AST]:
        """Return the nodes that an operation may be part of which is missing."""
        missing = half_facts.missing(self._version)
        if not missing.isdisjoint(chain.from_iterable(map(half_facts.operations_of, self._class_names()))):
            return self.facts.tree.nodes  # a layer is called by any name
        words = {name.rpartition(".")[2] for name in missing} | ({"@"} if _PRODUCT in missing else set())
        return self.facts.tree.nodes_with(*words, *self.context.project.transforming())

    def _class_names(self) -> set[str]:
        """Return the names in the text that may be those of layers."""
        return set(_CLASS_NAME.findall(self.context.source.text))

    def _checked(self, node: ast.Call | ast.BinOp) -> Iterator[Finding]:
        """Check an operation."""
        for name, operand in self._operations(node):
            dtype = self._dtype(operand)
            if dtype and half_facts.fails(dtype, name, self._version) and not self._is_cast(node):
                since = half_facts.since(dtype, name, self._version)
                when = f" before torch {since[0]}.{since[1]}" if since is not None else ""
                yield self.finding(
                    node, f"`{name}` does not support {dtype} on a CPU{when}; without CUDA, use float32"
                )
                return

    def _dtype(self, operand: ast.expr) -> str:
        """Return the type of a tensor, or the low precision that it may have; empty if neither is known."""
        value = self._precision.value(operand)
        return value.dtype if isinstance(value, Tensor) else self._precision.may_be_low(operand)

    def _operations(self, node: ast.Call | ast.BinOp) -> Iterator[tuple[str, ast.expr]]:
        """Yield the operations that an expression may be, with the operand that has their type."""
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.MatMult):
                yield _PRODUCT, node.left
            return
        name = self.facts.resolve(node.func) or ""
        prefix = next(filter(name.startswith, _FUNCTIONS), None)
        if prefix is not None and node.args:
            yield name.removeprefix(prefix), node.args[0]
        elif not name and isinstance(node.func, ast.Attribute):
            yield node.func.attr, node.func.value
        if prefix is None and name:
            yield from self._transformed(node, name)
        if prefix is None and node.args:
            for each in _computed(self._precision.value(node.func)):
                yield each, node.args[0]

    def _transformed(self, call: ast.Call, name: str) -> Iterator[tuple[str, ast.expr]]:
        """Yield the arguments that a function of another file transforms by Fourier."""
        for parameter, position in self.context.project.transforms(self.devices.path, name):
            given = [each.value for each in call.keywords if each.arg == parameter]
            given += call.args[position : position + 1]
            if given:
                yield _TRANSFORM, given[0]

    @cached_property
    def _version(self) -> tuple[int, int]:
        return self.context.options.runs_with or _NEWEST

    @cached_property
    def _precision(self) -> Precision:
        return Precision(self.facts)

    def _is_cast(self, node: ast.expr) -> bool:
        """Return whether an operation is under a context that may cast its operands."""
        return any(
            isinstance(item.context_expr, ast.Call)
            and "autocast" in (self.facts.resolve(item.context_expr.func) or "")
            for _, parent in self.facts.tree.ancestors(node)
            if isinstance(parent, (ast.With, ast.AsyncWith))
            for item in parent.items
        )


def _computed(layer: Value | None) -> Iterator[str]:
    """Yield the operations that a layer computes in the type of its input, as far as they are known."""
    if isinstance(layer, Module):
        yield from half_facts.operations_of(layer.name)
        if layer.name == "Sequential":
            yield from chain.from_iterable(map(_computed, layer.parts))
