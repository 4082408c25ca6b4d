from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.guards.answers import CUDNN, VERSION
from devicefix.facts.values import last_name
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule

_PARSERS = ("len", "int", "float", "parse", "Version", "LooseVersion", "StrictVersion")


class CudaVersion(Rule):
    """
    ## What it does
    Finds operations that fail if `torch.version.cuda` or `torch.backends.cudnn.version()` is `None`, such as
    `.split(".")` and `>=`.

    ## Why it matters
    In a build without CUDA, both are `None`, so these operations raise errors such as "'NoneType' object has no
    attribute 'split'".

    ## Example
    ```python
    CUDA_MAJOR = int(torch.version.cuda.split(".")[0])
    ```

    ## Use instead
    ```python
    CUDA_MAJOR = int((torch.version.cuda or "0.0").split(".")[0])
    ```

    ## Fix safety
    The fix is safe: with CUDA, the version is the same as before. In a build without CUDA, it is `"0.0"`, `"00.0"` or `0`, which
    is lower than any real version. There is no fix in `setup.py`, where the version decides what is built.
    """

    code = "DF403"
    name = "cuda-version"
    summary = "The CUDA or cuDNN version is None in builds without CUDA"
    words = (b"cuda", b"cudnn")
    references = (VERSION, CUDNN)
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
            "operations on strings",
            before="""
                import torch

                new = torch.version.cuda >= "11"
                minor = "." in torch.version.cuda
                major = int(torch.version.cuda[:2])
                shown = "%s, " % torch.version.cuda + torch.version.cuda
            """,
            after="""
                import torch

                new = (torch.version.cuda or "0.0") >= "11"
                minor = "." in (torch.version.cuda or "0.0")
                major = int((torch.version.cuda or "00.0")[:2])
                shown = "%s, " % torch.version.cuda + (torch.version.cuda or "0.0")
            """,
        ),
        Example(
            "a variable",
            before="""
                import torch

                q7 = torch.version.cuda
                major = int(q7.split(".")[0])
            """,
            after="""
                import torch

                q7 = torch.version.cuda
                major = int((q7 or "0.0").split(".")[0])
            """,
        ),
        Example(
            "the version of cuDNN",
            before="""
                import torch

                q7 = torch.backends.cudnn.version()
                fast = q7 >= 7600
                major = torch.backends.cudnn.version() // 1000
            """,
            after="""
                import torch

                q7 = torch.backends.cudnn.version()
                fast = (q7 or 0) >= 7600
                major = (torch.backends.cudnn.version() or 0) // 1000
            """,
        ),
        Example(
            "the branch without a version",
            before="""
                import torch

                if torch.version.cuda is None:
                    print("no CUDA")
                major = float(torch.version.cuda)
            """,
            after="""
                import torch

                if torch.version.cuda is None:
                    print("no CUDA")
                major = float(torch.version.cuda or "0.0")
            """,
        ),
        Example(
            "a test of something else",
            before="""
                import torch

                if torch.version.cuda != "11.8":
                    major = float(torch.version.cuda)
            """,
            after="""
                import torch

                if torch.version.cuda != "11.8":
                    major = float(torch.version.cuda or "0.0")
            """,
        ),
    )
    VALID = (
        Example(
            "a version of cuDNN that is shown, or is tested for None",
            """
                import torch

                print("cuDNN", torch.backends.cudnn.version())
                q7 = torch.backends.cudnn.version()
                fast = q7 is not None and q7 >= 7600
                if torch.backends.cudnn.version() is not None and torch.backends.cudnn.version() > 8000:
                    pass
                if torch.cuda.is_available():
                    print(torch.backends.cudnn.version() // 1000)
            """,
        ),
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
        Example(
            "after a return for the None",
            """
                import torch


                def major():
                    if not torch.version.cuda:
                        return 0
                    return float(torch.version.cuda)
            """,
        ),
        Example(
            "a variable after a test for None",
            """
                import torch

                q7 = torch.version.cuda
                major = 0 if q7 is None else float(q7)
            """,
        ),
    )

    def visit_reference(self, node: ast.Attribute | ast.Name, name: str) -> Iterator[Finding]:
        parent = self.facts.tree.parents[node]
        version = parent if isinstance(parent, ast.Call) and parent.func is node else node
        for use in (version, *self._uses(version)):
            if self._taken_apart(use) and not self.facts.built.is_guarded(use):
                around = self.facts.tree.parents.get(use)
                written = '"00.0"' if isinstance(around, ast.Subscript) else '"0.0"'  # `int(version[:2])`
                text = self.context.source.quoted(f"{{}} or {'0' if name == CUDNN else written}")
                text = text if isinstance(around, ast.Call) else f"({text})"
                fix = self.context.edit(use, text.format, self.devices.torch(use))
                builds = self.devices.path.endswith("setup.py")  # where a version decides what is built
                code = self.context.source.code(use)
                advice = (
                    "choose what `setup.py` builds in that case" if builds else f"use `{text.format(code)}`"
                )
                message = f"`{code}` is None in a build without CUDA; {advice}"
                yield self.finding(use, message, None if builds else fix)

    def _uses(self, node: ast.expr) -> Iterator[ast.expr]:
        """Yield the uses of a variable whose only value is the version."""
        match self.facts.tree.parents.get(node):
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is node:
                yield from (use for use in self.facts.tree.reads(name) if self.facts.value(use) is node)

    def _taken_apart(self, node: ast.expr) -> bool:
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Call):
            return last_name(parent.func) in _PARSERS
        if isinstance(parent, ast.Compare):
            is_searched = node in parent.comparators and isinstance(parent.ops[0], (ast.In, ast.NotIn))
            return is_searched or isinstance(parent.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        if isinstance(parent, ast.BinOp):
            return node is parent.left or isinstance(parent.op, ast.Add)
        return isinstance(parent, (ast.Attribute, ast.Subscript))
