from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.libraries import LIBRARIES, CudaLibraries, full_names

_BUILT = "torch.utils.cpp_extension."
_MENTIONED = (
    "apex", "amp_C", "cupy", "cudf", "cuml", "tensorrt", "torch2trt", "nvml", "nvidia", "numba", "flash_attn",
    "xformers", "triton", "transformer_engine", "mamba_ssm", "causal_conv1d", "tinycudann",
    "nvdiffrast", "diff_gaussian_rasterization", "simple_knn", "dcn_v2", "DCNv2", "lightseq", "_ext", "cuda",
)  # fmt: skip


class CudaOnlyLibrary(Rule):
    """
    ## What it does
    Reports imports of libraries that need CUDA (apex, CuPy, PyCUDA, TensorRT, NVML, DALI, flash-attn, xformers,
    Triton, DCNv2 and others), imports of a program's compiled CUDA extensions, and code that builds such extensions.
    An import under a guard, in a function that is only called under one, or in a `try` whose `except ImportError`
    continues without the library, is left alone. There is one finding for each library and file.

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
    words = (b"CUDAExtension", *sorted({name.partition(".")[0].encode() for name in LIBRARIES}))
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
        Example(
            "an import in a function that is only called for CUDA tensors",
            """
                def fast(x):
                    import triton

                    return triton.run(x)


                def run(x):
                    return fast(x) if x.is_cuda else x
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.built = False
        self._libraries = CudaLibraries(context)

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        text = self.context.source.text
        if not any(word in text for word in _MENTIONED):
            return
        reported: set[str] = set()
        for statement in self.facts.tree.imports:
            found = next(filter(None, map(self._libraries.of, full_names(statement))), None)
            if (
                found
                and found[0].partition(".")[0] not in reported
                and not self._libraries.copes(statement, found[0])
            ):
                reported.add(found[0].partition(".")[0])
                yield self.finding(statement, f"`{found[0]}` needs CUDA; {found[1]}")

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        name = self.facts.resolve(node.func) or ""
        if not name.startswith(_BUILT) or self._libraries.copes(node, "cuda"):
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
