from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.model import Finding
from devicefix.rules.base import Example, Rule

_LINALG = "torch.backends.cuda.preferred_linalg_library"
_BLAS = "torch.backends.cuda.preferred_blas_library"
_WORKS_ON_CPU = {_LINALG: {None, "default"}, _BLAS: {None, "default", "cublas", "hipblas", "ck"}}


class PreferredLibrary(Rule):
    """
    ## What it does
    Finds calls to `torch.backends.cuda.preferred_linalg_library` and `torch.backends.cuda.preferred_blas_library` that
    select a library available only in builds with CUDA, such as cuSOLVER, MAGMA or cuBLASLt.

    ## Why it matters
    In PyTorch builds without CUDA, the call raises a `RuntimeError`.

    ## Example
    ```python
    torch.backends.cuda.preferred_linalg_library("magma")
    ```

    ## Use instead
    ```python
    if torch.cuda.is_available():
        torch.backends.cuda.preferred_linalg_library("magma")
    ```

    ## Fix safety
    The fix is usually safe: with CUDA, the program still makes the call. The fix is unsafe if it checks for CUDA
    before the program sets `CUDA_VISIBLE_DEVICES`. There is no fix if the program uses the return value. The rule
    ignores calls without an argument or with a value that every build accepts, such as `"default"`.
    """

    code = "DF406"
    name = "preferred-library"
    summary = "A linear algebra library for CUDA is selected"
    references = (_LINALG, _BLAS)
    INVALID = (
        Example(
            "a statement",
            before="""
                import torch

                torch.backends.cuda.preferred_linalg_library("magma")  # faster here
                train()
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    torch.backends.cuda.preferred_linalg_library("magma")  # faster here
                train()
            """,
        ),
        Example(
            "a keyword, and a value that is not known",
            before="""
                import torch


                def configure(linalg):
                    torch.backends.cuda.preferred_blas_library(backend="cublaslt")
                    torch.backends.cuda.preferred_linalg_library(linalg)
            """,
            after="""
                import torch


                def configure(linalg):
                    if torch.cuda.is_available():
                        torch.backends.cuda.preferred_blas_library(backend="cublaslt")
                        torch.backends.cuda.preferred_linalg_library(linalg)
            """,
        ),
        Example(
            "another name for the function",
            before="""
                from torch.backends.cuda import preferred_linalg_library as prefer

                prefer("cusolver")
            """,
            after="""
                import torch
                from torch.backends.cuda import preferred_linalg_library as prefer

                if torch.cuda.is_available():
                    prefer("cusolver")
            """,
        ),
        Example(
            "another name for the module",
            before="""
                import torch.backends.cuda as backends

                backends.preferred_linalg_library("cusolver")
            """,
            after="""
                import torch
                import torch.backends.cuda as backends

                if torch.cuda.is_available():
                    backends.preferred_linalg_library("cusolver")
            """,
        ),
        Example(
            "before the program selects its GPUs",
            before="""
                import os
                import torch

                torch.backends.cuda.preferred_linalg_library("magma")
                os.environ["CUDA_VISIBLE_DEVICES"] = "1"
            """,
            after="""
                import os
                import torch

                if torch.cuda.is_available():
                    torch.backends.cuda.preferred_linalg_library("magma")
                os.environ["CUDA_VISIBLE_DEVICES"] = "1"
            """,
            unsafe=True,
        ),
        Example(
            "in a function that selects its GPUs later",
            before="""
                import os
                import torch


                def main():
                    torch.backends.cuda.preferred_linalg_library("magma")
                    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
            """,
            after="""
                import os
                import torch


                def main():
                    if torch.cuda.is_available():
                        torch.backends.cuda.preferred_linalg_library("magma")
                    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
            """,
            unsafe=True,
        ),
        Example(
            "a result that is used",
            before="""
                import torch

                backend = torch.backends.cuda.preferred_linalg_library("cusolver")
            """,
        ),
    )
    VALID = (
        Example(
            "under a guard",
            """
                import torch

                if torch.cuda.is_available():
                    torch.backends.cuda.preferred_linalg_library("magma")
            """,
        ),
        Example(
            "libraries that every build accepts",
            """
                import torch

                torch.backends.cuda.preferred_linalg_library("default")
                torch.backends.cuda.preferred_blas_library("cublas")
            """,
        ),
        Example(
            "the current library is asked for",
            """
                import torch

                print(torch.backends.cuda.preferred_linalg_library())
            """,
        ),
        Example(
            "a function of another module",
            """
                import torch
                from other import preferred_linalg_library

                preferred_linalg_library("magma")
            """,
        ),
    )

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        call = self.facts.tree.call_of(node)
        if call is None or self.facts.is_guarded(call):
            return
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        known = [value.value for value in values if isinstance(value, ast.Constant)]
        fails = any(value not in _WORKS_ON_CPU[name] for value in known)
        if not fails and len(known) == len(values):
            return
        statement = self.facts.tree.parents[call]
        raises = "raises" if fails else "may raise"
        message = f"`{name}` {raises} an error in builds without CUDA; call it only if CUDA is available"
        if isinstance(statement, ast.Expr):
            fix = self.context.put_under_guard(statement)
            yield self.finding(call, message, fix)
        else:
            yield self.finding(call, message, unless="because the program uses the result")
