from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.model import Finding
from devicefix.rewrite.calls import with_keyword
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.optional_imports import Asking

_MODULE = "torch.nn.attention.flex_attention."
_ATTENTION, _MASK = f"{_MODULE}flex_attention", f"{_MODULE}create_block_mask"
_ANY_DEVICE_SINCE = (2, 10)  # `create_block_mask` made the mask on "cuda" before
_DEVICE = 5  # the position of its device
_WITHOUT_GRADIENTS = ("torch.no_grad", "torch.inference_mode")


class FlexAttention(Rule):
    """
    ## What it does
    Finds uses of `torch.nn.attention.flex_attention.flex_attention`, except where gradients are disabled. If the
    program must support torch versions before 2.10, the rule also finds calls to `create_block_mask` without a device.

    ## Why it matters
    On a CPU, FlexAttention has no backward pass: calling it with an input that requires gradients raises
    `NotImplementedError: FlexAttention does not support backward on CPU` (torch 2.13). Before torch 2.10,
    `create_block_mask` creates the mask on `"cuda"` by default.

    ## Example
    ```python
    mask = create_block_mask(causal, None, None, 128, 128)
    ```

    ## Use instead
    ```python
    mask = create_block_mask(causal, None, None, 128, 128, device=device)
    ```

    ## Fix safety
    For `create_block_mask`, the fix is safe: with CUDA, the mask is on the same device as before. There is no fix for
    `flex_attention`: to train on a CPU, compute the same result with
    `torch.nn.functional.scaled_dot_product_attention`. The rule ignores code that selects FlexAttention by name, as in
    `if backend == "flex"`, because the user can choose another backend.
    """

    code = "DF418"
    name = "flex-attention"
    summary = (
        "FlexAttention has no gradients on a CPU, and older versions create its masks on CUDA by default"
    )
    references = (_ATTENTION, _MASK)
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
        Example(
            "a mask of torch since 2.10",
            """
                import torch
                from torch.nn.attention.flex_attention import create_block_mask

                mask = create_block_mask(causal, None, None, 128, 128)  # not on cuda
            """,
        ),
    )

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        if self.facts.is_guarded(node):
            return
        if name == _MASK:
            yield from self._mask(node)
        elif not (self._has_no_gradients(node) or Asking(self.facts, "flex").before(node)):
            yield self.finding(
                node,
                "`flex_attention` does not support gradients on a CPU; without CUDA, train with"
                " `torch.nn.functional.scaled_dot_product_attention`",
            )

    def _mask(self, node: ast.Name | ast.Attribute) -> Iterator[Finding]:
        """Check the device of a mask."""
        version, call = self.context.options.torch_version, self.facts.tree.parents.get(node)
        if version is None or version >= _ANY_DEVICE_SINCE:
            return
        if not (isinstance(call, ast.Call) and call.func is node):
            return
        if len(call.args) > _DEVICE or any(keyword.arg in (None, "device") for keyword in call.keywords):
            return
        device = self.devices.current(call)
        fix = self.context.edit(
            call, with_keyword("device", device.text), device, self.devices.why_unsafe(call)
        )
        yield self.finding(
            node,
            "before torch 2.10, `create_block_mask` creates masks on `cuda` by default; pass a device",
            fix,
        )

    def _has_no_gradients(self, node: ast.expr) -> bool:
        """Return whether the code around a node switches gradients off."""
        for _, parent in self.facts.tree.ancestors(node):
            items = getattr(parent, "items", ()) if isinstance(parent, ast.With) else ()
            around = [*(item.context_expr for item in items), *getattr(parent, "decorator_list", ())]
            for each in around:
                if (
                    self.facts.resolve(each.func if isinstance(each, ast.Call) else each)
                    in _WITHOUT_GRADIENTS
                ):
                    return True
        return False
