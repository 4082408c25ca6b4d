from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.facts.exports.imports import full_names, modules_of
from devicefix.facts.values import last_name
from devicefix.model import Finding, Fix
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.libraries import CudaLibraries
from devicefix.rules.shared.library_facts import LIBRARIES

_CUDA_OPTIONS = ("cuda_sources", "extra_cuda_cflags", "with_cuda")  # of `load` and `load_inline`
_ATTENTION = ("flash_attn", "flash_attn_interface")  # where it has no replacement
_BUILT = "torch.utils.cpp_extension."
# Running a program that does not exist raises an error. A shell prints one, and the output is empty.
_RAISING = ("subprocess.check_call", "subprocess.check_output")
_RAISING_WITHOUT_SHELL = ("subprocess.run", "subprocess.call", "subprocess.Popen")
_IMPORT = "importlib.import_module"
_IMPORTING = re.compile(r"\bimport(?= \w+ only if)")  # in advice
_READING = ("subprocess.getoutput", "subprocess.getstatusoutput", "os.popen")


def _words() -> list[bytes]:
    """Return what to search for in files that import a library."""
    return sorted({name.partition(".")[0].encode() for name in LIBRARIES})


class CudaOnlyLibrary(Rule):
    """
    ## What it does
    Finds imports of libraries that need CUDA (apex, CuPy, TensorRT, flash-attn, xformers, Triton and others) and of the
    project's compiled CUDA extensions. Also finds code that builds such extensions with `load` or `load_inline`, and most
    calls to `nvidia-smi`.

    The rule ignores an import under a check for CUDA, or in a `try` statement whose `except ImportError` continues
    without the library, unless code uses the library without such a check. For functions of xformers that need CUDA,
    checking whether the import succeeded is not enough.

    devicefix fixes nothing in a file with a top-level import of Triton, CuPy, PyCUDA, TensorRT, xfuser, a CUDA
    extension that the project builds, or flash-attn (unless `DF417` replaces the function). Instead, the message lists
    up to five lines that need CUDA. The same applies to top-level imports of such a file, unless the library is
    flash-attn or, outside tests, Triton.

    ## Why it matters
    Without CUDA, the import or the first call usually fails.

    ## Example
    ```python
    from apex import amp

    model, optimizer = amp.initialize(model, optimizer)
    ```

    ## Use instead
    The message suggests a replacement, if there is one. Otherwise, import the library under `if
    torch.cuda.is_available():`, and add a CPU path.

    ## Fix safety
    Usually, there is no fix, because the replacement depends on the program. If an option or flag that is on by
    default selects the library, the fix can set it to `torch.cuda.is_available()`. This fix is unsafe, because
    the other path may compute different results.
    """

    code = "DF902"
    name = "cuda-only-library"
    summary = "A library, extension or command needs CUDA"
    words = (b"nvidia-smi", b"get_kernel")
    common_words = (b"cuda", b"load", b"backend", *_words())
    INVALID = (
        Example(
            "a file that can't be imported without CUDA, in which nothing else is fixed",
            before="""
                import torch
                import triton
                import triton.language as tl


                @triton.jit
                def kernel(x):
                    pass


                def run(x):
                    x = x.cuda()
                    kernel[(1,)](x)
                    torch.cuda.synchronize()
            """,
        ),
        Example(
            "an extension that is built behind a switch of the program",
            before="""
                import torch
                from torch.utils.cpp_extension import load


                class Net:
                    def __init__(self, kernel=True):
                        self.kernel = kernel
                        if kernel:
                            self.ops = load(name="ops", sources=["ops.cpp", "ops.cu"])

                    def run(self, x):
                        return self.ops.run(x) if self.kernel else x.cumsum(0)
            """,
            after="""
                import torch
                from torch.utils.cpp_extension import load


                class Net:
                    def __init__(self, kernel=torch.cuda.is_available()):
                        self.kernel = kernel
                        if kernel:
                            self.ops = load(name="ops", sources=["ops.cpp", "ops.cu"])

                    def run(self, x):
                        return self.ops.run(x) if self.kernel else x.cumsum(0)
            """,
            unsafe=True,
        ),
        Example(
            "an import behind an option that is on by default",
            before="""
                import argparse
                import torch

                parser = argparse.ArgumentParser()
                parser.add_argument("--fused", action="store_true", default=True)
                args = parser.parse_args()
                if args.fused:
                    from apex.normalization import FusedLayerNorm as Norm
                else:
                    from torch.nn import LayerNorm as Norm
            """,
            after="""
                import argparse
                import torch

                parser = argparse.ArgumentParser()
                parser.add_argument("--fused", action="store_true", default=torch.cuda.is_available())
                args = parser.parse_args()
                if args.fused:
                    from apex.normalization import FusedLayerNorm as Norm
                else:
                    from torch.nn import LayerNorm as Norm
            """,
            unsafe=True,
        ),
        Example(
            "an extension behind a switch without which there is nothing",
            before="""
                from torch.utils.cpp_extension import load

                BUILD = True
                if BUILD:
                    ops = load(name="ops", sources=["ops.cpp", "ops.cu"])
            """,
        ),
        Example(
            "a flag that says that a library is installed, which it can be without CUDA",
            before="""
                import torch

                try:
                    from xformers.ops import memory_efficient_attention, unbind
                    FAST = True
                except ImportError:
                    FAST = False


                def attend(q, k, v):
                    if not FAST:
                        return torch.nn.functional.scaled_dot_product_attention(q, k, v)
                    return memory_efficient_attention(q, k, v)
            """,
            after="""
                import torch

                try:
                    from xformers.ops import memory_efficient_attention, unbind
                    FAST = torch.cuda.is_available()
                except ImportError:
                    FAST = False


                def attend(q, k, v):
                    if not FAST:
                        return torch.nn.functional.scaled_dot_product_attention(q, k, v)
                    return memory_efficient_attention(q, k, v)
            """,
            unsafe=True,
        ),
        Example(
            "another function in place of one that fails without CUDA, where the library is installed",
            before="""
                import torch

                try:
                    import xformers.ops as xops
                except ImportError:
                    xops = None


                class Attention:
                    def __init__(self, use_xformers=True):
                        self.fast = use_xformers and xops is not None

                    def forward(self, q, k, v):
                        if self.fast:
                            return xops.memory_efficient_attention(q, k, v)
                        return torch.nn.functional.scaled_dot_product_attention(q, k, v)
            """,
        ),
        Example(
            "a fallback of several names",
            before="""
                import torch

                try:
                    from mamba_ssm.ops.triton.layernorm import RMSNorm, layer_norm_fn
                except ImportError:
                    RMSNorm, layer_norm_fn = None, None


                def norm(x):
                    return layer_norm_fn(x)
            """,
        ),
        Example(
            "Apex",
            before="""
                from apex import amp
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
            "a compiled module of the project",
            before="""
                import torch

                from ._ext import dcn_v2 as _backend  # cuda
            """,
        ),
        Example(
            "a CUDA extension under a flag that is set in the program",
            before="""
                USE_CUDA_KERNEL = True

                if USE_CUDA_KERNEL:
                    from torch.utils.cpp_extension import load

                    load("ops", ["ops.cu"])
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
        Example(
            "an import whose failure is only printed",
            before="""
                try:  # cuda
                    import quant_cuda
                except ImportError:
                    print("no extension")


                def forward(x):
                    return quant_cuda.matmul(x)
            """,
        ),
        Example(
            "a library that a parameter of the module switches off",
            before="""
                import torch
                from flash_attn import flash_attn_varlen_func


                def attend(q, use_flash_attn=True):
                    return flash_attn_varlen_func(q, q, q) if use_flash_attn else q
            """,
        ),
        Example(
            "an extension with more than one part",
            before="""
                import selective_scan_cuda_core
            """,
        ),
        Example(
            "a use that does not ask whether the import succeeded",
            before="""
                try:  # cuda
                    import triton
                except ImportError:
                    triton = None


                @triton.jit
                def kernel(x):
                    pass
            """,
        ),
        Example(
            "a use of a name that is not bound without the library",
            before="""
                import torch

                try:
                    from flash_attn import flash_attn_func
                    HAS_FLASH = True
                except ImportError:
                    HAS_FLASH = False


                def attend(q, k, v, deep=True):
                    if deep:
                        return flash_attn_func(q, k, v)
                    return q
            """,
        ),
        Example(
            "a use behind another condition than that of the import",
            before="""
                import torch

                if torch.cuda.is_available():
                    import cupy


                def convert(x, gpu):
                    return cupy.asarray(x) if gpu else x
            """,
        ),
        Example(
            "an import under a flag with a telling name",
            before="""
                import torch

                if gpu_is_available:
                    import cupy
            """,
        ),
        Example(
            "the kernels of a library that needs Triton",
            before="""
                import torch
                from fla.ops.gla import chunk_gla
            """,
        ),
        Example(
            "a program that queries the driver",
            before="""
                import subprocess  # cuda

                free = subprocess.check_output(["nvidia-smi", "--query-gpu=memory.free", "--format=csv"])
            """,
        ),
        Example(
            "a program that queries the driver, in a shell",
            before="""
                import os  # cuda

                os.system("nvidia-smi -q -d Memory | grep Free > free.txt")
            """,
        ),
    )
    VALID = (
        Example(
            "a library that is installed, and used only if CUDA is available or somebody asks for it",
            """
                import torch

                try:
                    from xformers.ops import SwiGLU, memory_efficient_attention, unbind
                    FAST = True
                except ImportError:
                    FAST = False


                def attend(q, k, v, use_xformers=False):
                    if FAST and q.is_cuda:
                        return memory_efficient_attention(q, k, v)
                    if FAST and use_xformers:
                        return memory_efficient_attention(q, k, v)
                    return SwiGLU(2, 2)(unbind(q, 2)[0]) if FAST else q
            """,
        ),
        Example(
            "a backend that is not the default",
            """
                BACKEND = "sdpa"
                if BACKEND == "flash_attn":
                    import flash_attn
            """,
        ),
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
            "a library whose failed import leaves a flag or a value",
            """
                attend = None  # cuda
                try:
                    from flash_attn import attend
                except ImportError:
                    print("slow")
                try:
                    import apex
                    HAS_APEX = True
                except ImportError:
                    HAS_APEX = False


                def run(q):
                    if fast and attend is None:
                        raise ImportError
                    if attend:
                        return attend(q)
                    return apex.attend(q) if HAS_APEX else q
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
            "uses that ask whether the import succeeded",
            """
                import torch

                try:
                    import triton
                    from flash_attn import flash_attn_func
                    q7 = True
                except ImportError:
                    triton = None
                    q7 = False

                if triton is not None:
                    @triton.jit
                    def kernel(x):
                        pass


                class Attention:
                    def __init__(self, fast):
                        self.fast = fast and q7

                    def forward(self, q, k, v):
                        if self.fast:
                            return self._fast(q, k, v)
                        return q

                    def _fast(self, q, k, v):
                        return flash_attn_func(q, k, v)


                def attend(q, k, v):
                    if not q7:
                        raise ImportError("install flash-attn")
                    return flash_attn_func(q, k, v)


                def choose(name):
                    return {"plain": attend, "flash": lambda q: flash_attn_func(q, q, q)}[name]
            """,
        ),
        Example(
            "a class that can't be made without the library",
            """
                try:
                    from flash_attn import flash_attn_varlen_func
                except ImportError:
                    pass


                class Processor:
                    def __init__(self):
                        if not has_flash_attn():
                            raise ImportError("install flash-attn")

                    def __call__(self, q, k, v):
                        return flash_attn_varlen_func(q, k, v)
            """,
        ),
        Example(
            "a library with a replacement, and one without which the function returns",
            """
                import torch

                try:
                    from flash_attn import flash_attn_func
                except ImportError:
                    from .plain import flash_attn_func

                y = flash_attn_func(q, k, v)


                def version():
                    try:
                        import triton
                    except ImportError:
                        return None
                    return triton.__version__
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
            "a computation of KeOps on whatever there is",
            """
                import torch
                from pykeops.torch import Genred

                y = Genred("Exp(-x)", ["x = Vi(3)"])(x, backend="auto")
            """,
        ),
        Example(
            "a library whose name is part of others",
            """
                import flax  # cuda
                from flask import Flask
            """,
        ),
        Example(
            "a program that queries the driver, whose absence is handled or only printed",
            """
                import os  # cuda
                import subprocess

                try:
                    print(subprocess.check_output(["nvidia-smi"]))
                except FileNotFoundError:
                    print("no GPU")
                os.system("nvidia-smi")
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
        self._libraries = CudaLibraries(context)
        self._reported: set[str] = set()
        self._needed = context.project.needs_cuda(context.devices.path)

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        reported = self._reported
        needed = {*_ATTENTION, *self._needed}
        optional: list[tuple[ast.Import | ast.ImportFrom, str, str]] = []
        for statement in self.facts.tree.imports:
            if statement in self.context.handled:
                continue
            for library, advice in filter(None, map(self._libraries.of, full_names(statement))):
                if self._libraries.copes(statement, library):
                    optional.append((statement, library, advice))
                elif (package := library.partition(".")[0]) not in reported:
                    reported.add(package)
                    missing = self._missing(statement, library, "", advice)
                    if statement in node.body and not needed.isdisjoint((library, package)):
                        self.context.needs_cuda = self.context.needs_cuda or missing
                    yield missing
        for statement, library, advice in optional:
            package = library.partition(".")[0]
            finding = None if package in reported else self._unasked(statement, library, advice)
            if finding is not None:
                reported.add(package)
                yield finding
        if self._needed and self.context.needs_cuda is None:
            name, library = self._needed
            part = next((each for each in self.facts.tree.imports if name in modules_of(each)), node.body[0])
            what = f"`{name}`" if name else "the package of this file"
            cause = f" because of `{library}`" if library != name.partition(".")[0] else ""
            message = f"{what} needs CUDA{cause}; import it only if CUDA is available, and add a CPU path"
            self.context.needs_cuda = self.finding(part, message)  # reported where it stands for others

    def _unasked(self, statement: ast.Import | ast.ImportFrom, library: str, advice: str) -> Finding | None:
        """Return the finding for an import that may fail, and whose use needs the library or CUDA, None if it copes."""
        if (use := next(self._libraries.optional.unasked(statement, library), None)) is not None:
            line = f"(see line {statement.lineno}), but this line uses it without"
            missing = f" and may not be installed {line} a check"
            if self._libraries.optional.is_checked(statement):
                missing = f" and is imported only under a check {line} that check"
            return self._missing(use, library, missing, _IMPORTING.sub("use", advice))
        call = next(self._libraries.optional.without_cuda(statement, library), None)
        return None if call is None else self._installed(call, statement, library)

    def _installed(self, call: ast.expr, statement: ast.Import | ast.ImportFrom, library: str) -> Finding:
        """Return the finding for a call that only asks whether a library is installed."""
        package = library.partition(".")[0]
        message = (
            f"`{last_name(call)}` fails on a CPU even if `{package}` is installed (see line {statement.lineno});"
            " call it only if CUDA is available"
        )
        flag = self._libraries.optional.flag(statement)
        if flag is None:
            return self.finding(call, message, unless="because devicefix found no flag for the library")
        return self.finding(call, message, self._switched(flag))

    def _switched(self, flag: ast.expr) -> Fix:
        """Return the fix that turns on a flag only with CUDA."""
        why = "the path without the library may compute different results"
        return self.context.replace(flag, self.devices.available(flag, of_cuda=True), why)

    def _missing(self, node: ast.expr | ast.stmt, library: str, how: str, advice: str) -> Finding:
        """Return the finding for a library."""
        return self._behind_switch(node, f"`{library}` needs CUDA{how}", advice)

    def _behind_switch(self, node: ast.expr | ast.stmt, problem: str, advice: str) -> Finding:
        """Return a finding that names the program's own switch, if it has one with another path."""
        switch = self._libraries.switch(node)
        if switch is None:
            return self.finding(node, f"{problem}; {advice}")
        message = f"{problem}; without CUDA, set `{switch[0]}` to `False`"
        return self.finding(node, message, self._switched(switch[1]))

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        name = self.facts.resolve(node.func) or ""
        if _queries_driver(node, name) and not self._libraries.copes(node, "nvidia"):
            message = "`nvidia-smi` needs the NVIDIA driver; run it only if CUDA is available"
            yield self.finding(node, message, unless="because the program may need the output")
        yield from self._check_import(node, name)
        if not name.startswith(_BUILT) or self._libraries.copes(node, "cuda"):
            return
        kind = name.removeprefix(_BUILT)
        if kind in ("load", "load_inline") and self._of_cuda(node):
            problem = f"`{kind}(...)` needs the CUDA toolkit to compile CUDA code"
            advice = "build the extension only if CUDA is available, and add a CPU path in plain torch"
            yield self._behind_switch(node, problem, advice)

    def _check_import(self, node: ast.Call, name: str) -> Iterator[Finding]:
        """Check `importlib.import_module("library")` and `__import__("library")`."""
        imports = name == _IMPORT or (isinstance(node.func, ast.Name) and node.func.id == "__import__")
        match node.args[:1]:
            case [ast.Constant(value=str(module))] if imports and (found := self._libraries.of(module)):
                library, advice = found
                package = library.partition(".")[0]
                if package not in self._reported and not self._libraries.copes(node, library):
                    self._reported.add(package)
                    yield self._missing(node, library, "", advice)

    def _of_cuda(self, node: ast.Call) -> bool:
        """Return whether a call of `load` or `load_inline` builds CUDA code."""
        unpacked = [keyword.value for keyword in node.keywords if keyword.arg is None]
        bound = (binding.value for value in unpacked for binding in self.facts.bindings(value))
        for inner in (inner for part in (node, *filter(None, bound)) for inner in ast.walk(part)):
            if isinstance(inner, ast.keyword) and inner.arg in _CUDA_OPTIONS:
                return True
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                if inner.value.endswith(".cu") or inner.value in _CUDA_OPTIONS:
                    return True
        return False


def _queries_driver(node: ast.Call, name: str) -> bool:
    """Return whether a call of a function with this full name runs `nvidia-smi`, and fails without it."""
    if name not in (*_RAISING, *_RAISING_WITHOUT_SHELL, *_READING, "os.system"):
        return False
    command = ast.dump(node)
    if "nvidia-smi" not in command:
        return False
    options = {each.arg: each.value for each in node.keywords}
    if name in _RAISING_WITHOUT_SHELL:
        return "shell" not in options or "check" in options
    return name != "os.system" or ">" in command
