from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.facts import refuses
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule

# What to do without each library, by module.
_LIBRARIES = {
    "apex.amp": "use `torch.autocast` and `torch.amp.GradScaler`, which disable themselves on a CPU",
    "apex.fp16_utils": "use `torch.autocast` and `torch.amp.GradScaler`, which disable themselves on a CPU",
    "apex.parallel": "use `torch.nn.parallel.DistributedDataParallel` and `torch.nn.SyncBatchNorm`",
    "apex.optimizers": "use the same optimizer of `torch.optim`, with `fused=True` on a GPU",
    "apex.normalization": "use `torch.nn.LayerNorm` or `torch.nn.RMSNorm`",
    "apex": "use torch, which now has most of its features, or import it only if CUDA is available",
    "amp_C": "this is a compiled part of apex; use the `foreach` and `fused` optimizers of `torch.optim`",
    "apex_C": "this is a compiled part of apex; import it only if CUDA is available",
    "pycuda": "use torch operators, or add a CPU path",
    "cupy": "use NumPy or torch operators, or import it only if CUDA is available",
    "cudf": "use pandas without CUDA",
    "cuml": "use scikit-learn without CUDA",
    "tensorrt": "add a path that runs the torch or ONNX model without CUDA",
    "torch_tensorrt": "add a path that runs the torch model without CUDA",
    "torch2trt": "add a path that runs the torch model without CUDA",
    "pynvml": "this queries the NVIDIA driver; use it only if CUDA is available",
    "py3nvml": "this queries the NVIDIA driver; use it only if CUDA is available",
    "nvidia_smi": "this queries the NVIDIA driver; use it only if CUDA is available",
    "numba.cuda": "add a CPU path with torch operators or `numba.njit`",
    "nvidia.dali": "use `torch.utils.data.DataLoader` and the transforms of torchvision without CUDA",
    "flash_attn": "use `torch.nn.functional.scaled_dot_product_attention`, which works on any device",
    "xformers": "use `torch.nn.functional.scaled_dot_product_attention`, which works on any device",
    "triton": "add a CPU path with torch operators",
    "transformer_engine": "use the layers of `torch.nn` without CUDA",
    "mamba_ssm": "its kernels are compiled for CUDA; add a CPU path in plain torch",
    "causal_conv1d": "use `torch.nn.functional.conv1d` with padding on the left",
    "tinycudann": "add a CPU path with torch layers",
    "nvdiffrast": "it has no CPU counterpart; import it only if CUDA is available",
    "diff_gaussian_rasterization": "it has no CPU counterpart; import it only if CUDA is available",
    "simple_knn": "add a CPU path that searches for neighbors with torch operators",
    "dcn_v2": "use `torchvision.ops.deform_conv2d`, which works on any device",
    "DCNv2": "use `torchvision.ops.deform_conv2d`, which works on any device",
    "lightseq": "use the layers of `torch.nn` without CUDA",
}
_TRITON = {
    "language",
    "jit",
    "Config",
    "autotune",
    "heuristics",
    "cdiv",
    "runtime",
    "compiler",
    "testing",
    "ops",
}
_EXTENSION = re.compile(r"\w+_cuda(_ext)?|(alt|ext)_cuda_\w+")
_BUILT = "torch.utils.cpp_extension."
_MENTIONED = (
    "apex", "amp_C", "cupy", "cudf", "cuml", "tensorrt", "torch2trt", "nvml", "nvidia", "numba", "flash_attn",
    "xformers", "triton", "transformer_engine", "mamba_ssm", "causal_conv1d", "tinycudann",
    "nvdiffrast", "diff_gaussian_rasterization", "simple_knn", "dcn_v2", "DCNv2", "lightseq", "_ext", "cuda",
)  # fmt: skip
_FAILED = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException", "OSError", "RuntimeError"}


class CudaOnlyLibrary(Rule):
    """
    ## What it does
    Reports imports of libraries that need CUDA (apex, CuPy, PyCUDA, TensorRT, NVML, DALI, flash-attn, xformers,
    Triton, DCNv2 and others), imports of a program's compiled CUDA extensions, and code that builds such extensions.
    An import under a guard, or in a `try` whose `except ImportError` continues without the library, is left alone.
    There is one finding for each library and file.

    ## Why it matters
    Without CUDA the import fails, or the first call does.

    ## Example
    ```python
    from apex import amp

    model, optimizer = amp.initialize(model, optimizer)
    ```

    ## Use instead
    The message names a replacement: torch now has most features of these libraries. If there is no replacement,
    import the library under `if torch.cuda.is_available():` or in a `try`, and add a CPU path.

    ## Fix safety
    There is no fix: the replacement depends on the program.
    """

    code = "DF902"
    name = "cuda-only-library"
    summary = "A library needs CUDA"
    words = (b"CUDAExtension", *sorted({name.partition(".")[0].encode() for name in _LIBRARIES}))
    common_words = (b"cuda", b"load")
    INVALID = (
        Example(
            "Apex",
            before="""
                from apex import amp  # cuda
            """,
        ),
        Example(
            "CuPy",
            before="""
                import torch

                import cupy as cp  # cuda
            """,
        ),
        Example(
            "the cuda module of Numba",
            before="""
                from numba import cuda


                @cuda.jit
                def kernel(x):
                    pass
            """,
        ),
        Example(
            "a CUDA extension",
            before="""
                import torch
                from torch.utils.cpp_extension import CUDAExtension

                CUDAExtension('ops', ['ops_cuda.cu'])
            """,
        ),
        Example(
            "a compiled module of the project",
            before="""
                import torch

                from ._ext import dcn_v2 as _backend  # cuda
            """,
        ),
        Example(
            "an import whose failure is an error",
            before="""
                try:  # cuda
                    import apex.parallel
                except ImportError:
                    raise RuntimeError('install apex')
            """,
        ),
    )
    VALID = (
        Example(
            "an import whose failure is handled",
            """
                try:  # cuda
                    from apex import amp
                except ImportError:
                    amp = None
            """,
        ),
        Example(
            "under a guard",
            """
                import torch

                if torch.cuda.is_available():
                    import cupy
            """,
        ),
        Example(
            "for type checking only",
            """
                from typing import TYPE_CHECKING

                if TYPE_CHECKING:  # cuda
                    import triton
            """,
        ),
        Example(
            "under a test for the library",
            """
                if is_xformers_available():  # cuda
                    import xformers.ops
            """,
        ),
        Example(
            "another part of Numba",
            """
                from numba import jit  # no cuda
            """,
        ),
        Example(
            "a module of the project with the same name",
            """
                from .apex import launch  # cuda
            """,
        ),
        Example(
            "a library that also runs on a CPU since its version 0.46",
            """
                import bitsandbytes as bnb  # cuda
            """,
        ),
        Example(
            "a library whose name begins alike",
            """
                import tritonclient.http  # cuda
            """,
        ),
        Example(
            "a module of the project that names CUDA",
            """
                from utils.cuda_timer import Timer
            """,
        ),
        Example(
            "a function of the project that names CUDA",
            """
                from .utils import to_cuda
            """,
        ),
        Example(
            "an extension that is built for CUDA or the CPU",
            """
                import torch
                from torch.utils.cpp_extension import CUDA_HOME, CUDAExtension, CppExtension

                if CUDA_HOME is None:
                    ext = CppExtension('ops', ['ops.cpp'])
                else:
                    ext = CUDAExtension('ops', ['ops.cu'])
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.built = False

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        text = self.context.source.text
        if not any(word in text for word in _MENTIONED):
            return
        reported: set[str] = set()
        for statement in self.facts.tree.imports:
            found = next(filter(None, map(self._library, _names(statement))), None)
            if found and found[0].partition(".")[0] not in reported and not self._copes(statement, found[0]):
                reported.add(found[0].partition(".")[0])
                yield self.finding(statement, f"`{found[0]}` needs CUDA; {found[1]}")

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        name = self.facts.resolve(node.func) or ""
        if not name.startswith(_BUILT) or self._copes(node, "cuda"):
            return
        kind = name.removeprefix(_BUILT)
        if kind in ("load", "load_inline") and not self._of_cuda(node):
            return
        if kind in ("CUDAExtension", "load", "load_inline") and not self.built:
            self.built = True  # one finding for a list of extensions
            yield self.finding(
                node,
                f"`{kind}(...)` needs the CUDA toolkit to compile CUDA code; build it only if CUDA is"
                " available, and add a CPU path in plain torch",
            )

    def _of_cuda(self, node: ast.Call) -> bool:
        """Return whether a call of `load` or `load_inline` builds CUDA code."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.keyword) and inner.arg in (
                "cuda_sources",
                "extra_cuda_cflags",
                "with_cuda",
            ):
                return True
            if (
                isinstance(inner, ast.Constant)
                and isinstance(inner.value, str)
                and inner.value.endswith(".cu")
            ):
                return True
        return False

    def _library(self, name: str) -> tuple[str, str] | None:
        """Return the library of an imported name and what to do without it, or None."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            library = ".".join(parts[:end])
            advice = _LIBRARIES.get(library)
            if library == "triton" and parts[1:] and parts[1] not in _TRITON:
                continue  # the inference server of NVIDIA has the same name
            if advice is not None:
                own = any(
                    self.context.project.has_module(self.devices.path, candidate)
                    for candidate in (library, parts[0])
                )
                return None if own else (library, advice)
        module = _compiled(name)
        if module is not None and not self.context.project.has_module(self.devices.path, name):
            advice = "it is compiled for CUDA; import it only if CUDA is available, and add a CPU path in plain torch"
            return module, advice
        return None

    def _copes(self, node: ast.AST, library: str) -> bool:
        """Return whether a program continues without the code at a node if CUDA is not available."""
        if self.facts.is_guarded(node):
            return True
        word = re.compile(rf"{re.escape(library.partition('.')[0])}|cuda|gpu|available|TYPE_CHECKING", re.I)
        for child, parent in self.facts.tree.ancestors(node):
            if isinstance(parent, ast.If) and child is not parent.test:
                if word.search(self.context.source.code(parent.test)):
                    return True
            if isinstance(parent, ast.Try) and child in parent.body:
                if any(_catches(handler) and not refuses(handler.body) for handler in parent.handlers):
                    return True
            if isinstance(parent, ast.With) and "suppress" in self.context.source.code(
                parent.items[0].context_expr
            ):
                return True
        return False


def _names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Yield the full names of what an import binds."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = "." * node.level + (node.module or "")
    joint = "" if module.endswith(".") else "."
    return [f"{module}{joint}{alias.name}" for alias in node.names]


def _compiled(name: str) -> str | None:
    """Return the name of a compiled extension, by the usual names `nms_cuda` and `._ext.nms`, or None."""
    parts = name.lstrip(".").split(".")
    if name.startswith("."):
        if parts[0] == "_ext":
            return ".".join(parts)
        return parts[0] if len(parts) == 1 and _EXTENSION.fullmatch(parts[0]) else None
    return parts[0] if _EXTENSION.fullmatch(parts[0]) else None


def _catches(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler catches the error of a failed import."""
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in _FAILED for kind in types)
