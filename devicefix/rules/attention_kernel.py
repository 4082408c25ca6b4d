from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.values import is_constant, last_name
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.torch_facts import ATTENTION

_KERNEL = "torch.nn.attention.sdpa_kernel"
_SWITCHES = "torch.backends.cuda.sdp_kernel"  # its predecessor
_NO_KERNEL = (
    "leaves no CPU kernel for scaled dot product attention; allow the math kernel if CUDA is not available"
)


class AttentionKernel(Rule):
    """
    ## What it does
    Finds context managers that leave a CPU without a kernel for scaled dot product attention.

    ## Why it matters
    On a CPU, attention raises `RuntimeError: No viable backend` unless the math or flash kernel is enabled.

    ## Example
    ```python
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        y = F.scaled_dot_product_attention(q, k, v)
    ```

    ## Use instead
    ```python
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION if torch.cuda.is_available() else SDPBackend.MATH):
        y = F.scaled_dot_product_attention(q, k, v)
    ```

    ## Fix safety
    There is no fix. Enable the math kernel only without CUDA. Otherwise, torch may use it on GPUs too.
    """

    code = "DF414"
    name = "attention-kernel"
    summary = "A context manager leaves a CPU without an attention kernel"
    references = (_KERNEL, _SWITCHES)
    words = (b"sdpa_kernel", b"sdp_kernel")
    INVALID = (
        Example(
            "a kernel of attention that a CPU does not have",
            before="""
                from torch.nn.attention import SDPBackend, sdpa_kernel

                with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
                    y = attend(q, k, v)
            """,
        ),
        Example(
            "several kernels of attention that a CPU does not have",
            before="""
                from torch.nn.attention import SDPBackend, sdpa_kernel

                with sdpa_kernel(backends=[SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]):
                    y = attend(q, k, v)
            """,
        ),
        Example(
            "switches of kernels of attention",
            before="""
                import torch

                with torch.backends.cuda.sdp_kernel(enable_flash=False, enable_math=False):
                    y = attend(q, k, v)
            """,
        ),
    )
    VALID = (
        Example(
            "kernels that a CPU has",
            """
                import torch
                from torch.nn.attention import SDPBackend, sdpa_kernel

                with sdpa_kernel([SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION]):
                    x = torch.rand(1)
                with sdpa_kernel(backends):
                    x = torch.rand(1)
                with torch.backends.cuda.sdp_kernel(enable_math=False, enable_mem_efficient=False):
                    x = torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.0)
                with torch.backends.cuda.sdp_kernel(*flags):
                    x = torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=p)
                torch.backends.cuda.enable_flash_sdp(False)
                torch.backends.cuda.enable_math_sdp(True)
            """,
        ),
    )

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        call = self.facts.tree.call_of(node)
        if call is None or self.facts.is_guarded(node):
            return
        if _switches_off(call) if name == _SWITCHES else self._names_none(call):
            yield self.finding(call, f"`{last_name(node)}` {_NO_KERNEL}")

    def _names_none(self, call: ast.Call) -> bool:
        """Return whether a context names kernels, none of which a CPU has."""
        named = (each.value for each in call.keywords if each.arg == "backends")
        given = next((each for each in (*call.args, *named)), None)
        backends = given.elts if isinstance(given, (ast.List, ast.Tuple)) else [given]
        names = [(each and self.facts.resolve(each)) or "" for each in backends]
        return bool(names) and all(".SDPBackend." in each and not each.endswith(ATTENTION) for each in names)


def _switches_off(call: ast.Call) -> bool:
    """Return whether a context switches off both kernels that a CPU has."""
    switches = (argument_of(call, name, place) for place, name in enumerate(("enable_flash", "enable_math")))
    return all(is_constant(each, False) for each in switches)
