from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.values import last_name
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule


class CudaVersion(Rule):
    """
    ## What it does
    Finds operations on `torch.version.cuda`: splitting, indexing, conversion to a number or version, comparison.

    ## Why it matters
    It is None in a build of torch without CUDA: "'NoneType' object has no attribute 'split'".

    ## Example
    ```python
    CUDA_MAJOR = int(torch.version.cuda.split(".")[0])
    ```

    ## Use instead
    ```python
    CUDA_MAJOR = int((torch.version.cuda or "0.0").split(".")[0])
    ```

    ## Fix safety
    Safe: with CUDA the version is the same as before. Without CUDA it is lower than any real version.
    """

    code = "DF403"
    name = "cuda-version"
    summary = "`torch.version.cuda` is None without CUDA"
    words = (b"cuda",)
    references = ("torch.version.cuda",)
    INVALID = (
        Example(
            "a number taken from the version",
            before="""
                import torch

                major = int(torch.version.cuda.split(".")[0])
            """,
            after="""
                import torch

                major = int((torch.version.cuda or "0.0").split(".")[0])
            """,
        ),
        Example(
            "a comparison of parsed versions",
            before="""
                import torch

                new = LooseVersion(torch.version.cuda) >= LooseVersion('9.0')
            """,
            after="""
                import torch

                new = LooseVersion(torch.version.cuda or '0.0') >= LooseVersion('9.0')
            """,
        ),
        Example(
            "a comparison of strings",
            before="""
                import torch

                new = torch.version.cuda >= "11"
            """,
            after="""
                import torch

                new = (torch.version.cuda or "0.0") >= "11"
            """,
        ),
    )
    VALID = (
        Example(
            "a version that is printed",
            """
                import torch

                print(torch.version.cuda)
            """,
        ),
        Example(
            "after a test for None",
            """
                import torch

                if torch.version.cuda is not None:
                    print(torch.version.cuda.split('.'))
            """,
        ),
        Example(
            "after a test in the same condition",
            """
                import torch

                if torch.version.cuda and float(torch.version.cuda) > 9:
                    pass
            """,
        ),
    )

    def visit_reference(self, node: ast.Attribute | ast.Name, name: str) -> Iterator[Finding]:
        if self._taken_apart(node) and not self.facts.is_guarded(node) and not self._asked(node):
            text = self.context.source.quoted('{} or "0.0"')
            roomy = isinstance(self.facts.tree.parents.get(node), ast.Call)
            text = text if roomy else f"({text})"
            fix = self.context.edit(node, text.format, self.devices.torch(node))
            yield self.finding(
                node, '`torch.version.cuda` is None in a build without CUDA; add `or "0.0"`', fix
            )

    def _taken_apart(self, node: ast.expr) -> bool:
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Call):
            return last_name(parent.func) in (
                "int",
                "float",
                "parse",
                "Version",
                "LooseVersion",
                "StrictVersion",
            )
        if isinstance(parent, ast.Compare):
            return isinstance(parent.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        return isinstance(parent, (ast.Attribute, ast.Subscript))

    def _asked(self, node: ast.expr) -> bool:
        """Return whether a test around a node checks for the version first."""
        for child, parent in self.facts.tree.ancestors(node):
            if (
                isinstance(parent, (ast.If, ast.IfExp))
                and child is not parent.test
                and self._holds(parent.test)
            ):
                return True
            if (
                isinstance(parent, ast.BoolOp)
                and self._holds(parent.values[0])
                and child is not parent.values[0]
            ):
                return True
        return False

    def _holds(self, test: ast.expr) -> bool:
        return any(
            isinstance(inner, (ast.Attribute, ast.Name)) and self.facts.resolve(inner) == "torch.version.cuda"
            for inner in ast.walk(test)
        )
