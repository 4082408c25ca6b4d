from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.copies.buffers import without_gradients
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.optional_imports import Asking


class FlexAttention(Rule):
    """
    ## What it does
    Finds uses of `torch.nn.attention.flex_attention.flex_attention`, except under `torch.no_grad()` or
    `torch.inference_mode()`.

    ## Why it matters
    On a CPU, FlexAttention has no backward pass: calling it with an input that requires gradients raises
    `NotImplementedError: FlexAttention does not support backward on CPU` (torch 2.13).

    ## Example
    ```python
    y = flex_attention(q, k, v)
    ```

    ## Use instead
    ```python
    y = flex_attention(q, k, v) if q.is_cuda else F.scaled_dot_product_attention(q, k, v)
    ```

    ## Fix safety
    There is no fix. To train on a CPU, use another function, such as
    `torch.nn.functional.scaled_dot_product_attention`. The rule ignores FlexAttention under a condition such as
    `if backend == "flex"`.
    """

    code = "DF418"
    name = "flex-attention"
    summary = "FlexAttention does not support gradients on a CPU"
    references = ("torch.nn.attention.flex_attention.flex_attention",)
    INVALID = (
        Example(
            "attention that may be trained",
            before="""
                import torch
                from torch.nn.attention.flex_attention import flex_attention

                def attend(q, k, v):
                    return flex_attention(q, k, v)
            """,
        ),
        Example(
            "attention that is compiled",
            before="""
                import torch
                from torch.nn.attention import flex_attention as flex

                attend = torch.compile(flex.flex_attention)
            """,
        ),
    )
    VALID = (
        Example(
            "no gradients",
            """
                import torch
                from torch.nn.attention.flex_attention import flex_attention

                @torch.no_grad()
                def attend(q, k, v):
                    return flex_attention(q, k, v)

                with torch.inference_mode():
                    y = flex_attention(q, k, v)
            """,
        ),
        Example(
            "with CUDA only, or at the user's choice",
            """
                import torch
                from torch.nn.attention.flex_attention import flex_attention

                def attend(q, k, v, backend):
                    if q.is_cuda or backend == "flex":
                        return flex_attention(q, k, v)
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v)
            """,
        ),
    )

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        if self.facts.is_guarded(node) or without_gradients(self.facts, node):
            return
        if not Asking(self.facts, "flex").before(node):
            advice = "without CUDA, train with another function, such as `torch.nn.functional.scaled_dot_product_attention`"
            yield self.finding(node, f"`flex_attention` does not support gradients on a CPU; {advice}")
