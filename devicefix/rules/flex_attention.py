from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.values import without_call
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.optional_imports import Asking

_WITHOUT_GRADIENTS = ("torch.no_grad", "torch.inference_mode")


class FlexAttention(Rule):
    """
    ## What it does
    Finds uses of `torch.nn.attention.flex_attention.flex_attention`, except where gradients are disabled.

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
    There is no fix: to train on a CPU, compute the same result with
    `torch.nn.functional.scaled_dot_product_attention`. The rule ignores code that selects FlexAttention by name, as in
    `if backend == "flex"`, because the user can choose another backend.
    """

    code = "DF418"
    name = "flex-attention"
    summary = "FlexAttention has no gradients on a CPU"
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
        if self.facts.is_guarded(node) or self._has_no_gradients(node):
            return
        if not Asking(self.facts, "flex").before(node):
            yield self.finding(
                node,
                "`flex_attention` does not support gradients on a CPU; without CUDA, train with"
                " `torch.nn.functional.scaled_dot_product_attention`",
            )

    def _has_no_gradients(self, node: ast.expr) -> bool:
        """Return whether the code around a node switches gradients off."""
        for _, parent in self.facts.tree.ancestors(node):
            items = getattr(parent, "items", ()) if isinstance(parent, ast.With) else ()
            around = [*(item.context_expr for item in items), *getattr(parent, "decorator_list", ())]
            if any(self.facts.resolve(without_call(each)) in _WITHOUT_GRADIENTS for each in around):
                return True
        return False
