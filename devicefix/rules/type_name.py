from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule
from devicefix.rules.typed_tensor import asks_about_moved, asks_where, converted, default_type, only_named

_NAME = re.compile(r"torch\.cuda\.((?:sparse\.)?\w*Tensor)\Z")


class TypeName(Rule):
    """
    ## What it does
    Finds CUDA tensor types given as strings, as in `x.type() == "torch.cuda.HalfTensor"` and
    `torch.set_default_tensor_type("torch.cuda.FloatTensor")`.

    ## Why it matters
    Without CUDA, converting a tensor to such a type fails. On a CPU, `x.type()` is never `"torch.cuda.HalfTensor"`, so
    the program may take a different path than on a GPU.

    ## Example
    ```python
    if x.type() == "torch.cuda.HalfTensor":
        weight = weight.half()
    ```

    ## Use instead
    ```python
    if x.type() == ("torch.cuda.HalfTensor" if torch.cuda.is_available() else "torch.HalfTensor"):
        weight = weight.half()
    ```

    ## Fix safety
    The fix is usually safe: with CUDA, the string is the same as before.

    A comparison with `"torch.cuda.FloatTensor"` can check a tensor's device or its dtype. The rule reports such
    a comparison only if the same file moves the tensor to a GPU, because the comparison then probably checks the dtype.
    Such a comparison has no fix; check the dtype instead.
    """

    code = "DF302"
    name = "type-name"
    summary = "A string specifies a CUDA tensor type"
    words = (b"cuda",)
    INVALID = (
        Example(
            "a comparison that asks for the dtype",
            before="""
                import torch

                if x.type() == 'torch.cuda.HalfTensor':
                    w = w.half()
            """,
            after="""
                import torch

                if x.type() == ('torch.cuda.HalfTensor' if torch.cuda.is_available() else 'torch.HalfTensor'):
                    w = w.half()
            """,
        ),
        Example(
            "the default tensor type",
            before="""
                import torch

                torch.set_default_tensor_type("torch.cuda.FloatTensor")
            """,
            after="""
                import torch

                torch.set_default_tensor_type("torch.cuda.FloatTensor" if torch.cuda.is_available() else "torch.FloatTensor")
            """,
        ),
        Example(
            "a question about a tensor that is moved",
            before="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                x = x.to(device)
                if x.type() == "torch.cuda.FloatTensor":
                    x = x.double()
            """,
        ),
    )
    VALID = (
        Example(
            "a comparison that asks for the device",
            """
                import torch

                if x.type() == 'torch.cuda.FloatTensor':
                    x = x.cpu()
            """,
        ),
        Example(
            "the keys of a dictionary",
            """
                import torch

                ops = {'torch.FloatTensor': a, 'torch.cuda.FloatTensor': b}
            """,
        ),
        Example(
            "under a guard",
            """
                import torch

                if torch.cuda.is_available():
                    torch.set_default_tensor_type("torch.cuda.FloatTensor")
            """,
        ),
        Example(
            "a docstring",
            '''
                """torch.cuda.FloatTensor"""
            ''',
        ),
    )

    def visit_Constant(self, node: ast.Constant) -> Iterator[Finding]:
        if not isinstance(node.value, str):
            return
        match = _NAME.match(node.value)
        if match is None or self.facts.is_guarded(node):
            return
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, (ast.Expr, ast.JoinedStr)) or only_named(self.facts, node):
            return
        if asks_where(self.facts, node, match[1]):
            if asks_about_moved(self.facts, node):
                yield self.finding(node, f"a CPU tensor is never a `{node.value}`; compare the dtype")
            return
        fix = (
            default_type(self.context, node, match[1])
            or converted(self.context, node, match[1])
            or self._of_accelerator(node, parent, match[1])
            or self.context.when_cuda(node, f'"torch.{match[1]}"')
        )
        yield self.finding(node, f"the type `{node.value}` needs CUDA; use it only if CUDA is available", fix)

    def _of_accelerator(self, node: ast.expr, parent: ast.AST | None, kind: str) -> Fix | None:
        """Return the fix of a name that is compared: on an accelerator, it has the type of the device."""
        device = self.devices.text(node) if self.context.accelerator is not None else None
        if device is None or not isinstance(parent, ast.Compare):
            return None
        code, use = device
        source = self.context.source

        def new(old: str) -> str:
            of_cpu, of_device = f'"torch.{kind}"', f'f"torch.{{{code()}}}.{kind}"'
            return source.quoted(f'({of_device} if {code()} != "cpu" else {of_cpu})', old)

        return Fix((Edit(*source.span(node), new),), needs=use.needs)
