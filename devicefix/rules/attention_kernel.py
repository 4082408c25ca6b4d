from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from devicefix.facts.values import last_name
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.torch_facts import ATTENTION

_KERNEL = "torch.nn.attention.sdpa_kernel"
_OLD_KERNEL = "torch.backends.cuda.sdp_kernel"
_OLD_SWITCHES = ("enable_flash", "enable_math", "enable_mem_efficient")  # its parameters
_SWITCHES = ("torch.backends.cuda.enable_flash_sdp", "torch.backends.cuda.enable_math_sdp")
_ATTENTION = "scaled_dot_product_attention"
_DROPOUT = 4  # the position of its dropout
_NO_DROPOUT = "leaves no CPU kernel for attention with dropout; allow `MATH` if CUDA is not available"
_NO_KERNEL = "leaves no CPU kernel for scaled dot product attention; allow `MATH` if CUDA is not available"


class AttentionKernel(Rule):
    """
    ## What it does
    Finds settings that leave a CPU without a kernel for scaled dot product attention.

    ## Why it matters
    On a CPU, attention raises `RuntimeError: No viable backend` unless the math or flash kernel is enabled. With
    dropout, the math kernel must be enabled.

    ## Example
    ```python
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        y = F.scaled_dot_product_attention(q, k, v)
    ```

    ## Use instead
    ```python
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        y = F.scaled_dot_product_attention(q, k, v)
    ```

    ## Fix safety
    There is no fix: enabling another kernel may change which kernel CUDA uses.
    """

    code = "DF414"
    name = "attention-kernel"
    summary = "A setting leaves no attention kernel for a CPU"
    references = (_KERNEL, _OLD_KERNEL, *_SWITCHES)
    words = (b"sdpa_kernel",)
    common_words = (b"sdp",)
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
            "kernels of attention in torch before 2.3",
            before="""
                import torch

                with torch.backends.cuda.sdp_kernel(enable_flash=False, enable_math=False):
                    y = attend(q, k, v)
            """,
        ),
        Example(
            "kernels of attention by position",
            before="""
                import torch

                with torch.backends.cuda.sdp_kernel(False, False, True):
                    y = attend(q, k, v)
            """,
        ),
        Example(
            "dropout with the flash kernel alone",
            before="""
                import torch
                import torch.nn.functional as F
                from torch.nn.attention import SDPBackend, sdpa_kernel


                def attend(q, k, v, p):
                    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p)
                    with torch.backends.cuda.sdp_kernel(enable_math=False):
                        return y + F.scaled_dot_product_attention(q, k, v, None, 0.1)
            """,
        ),
        Example(
            "kernels of attention that are disabled for good",
            before="""
                import torch

                torch.backends.cuda.enable_flash_sdp(False)
                torch.backends.cuda.enable_math_sdp(False)
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
        Example(
            "one of two switches, and the other where CUDA is",
            """
                import torch

                torch.backends.cuda.enable_math_sdp(False)
                if torch.cuda.is_available():
                    torch.backends.cuda.enable_flash_sdp(False)
            """,
        ),
    )

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        call = self.facts.tree.parents[node]
        if not isinstance(call, ast.Call) or call.func is not node or self.facts.is_guarded(node):
            return
        if name in _SWITCHES:
            if name == _SWITCHES[1] and all(map(self._is_off, _SWITCHES)):
                yield self.finding(call, f"`{last_name(node)}` {_NO_KERNEL}")
            return
        math, flash = self._allowed(call, name)
        if not math and not flash:
            yield self.finding(call, f"`{last_name(node)}` {_NO_KERNEL}")
        elif not math and self._has_dropout(call):
            yield self.finding(call, f"`{last_name(node)}` {_NO_DROPOUT}")

    def _allowed(self, call: ast.Call, name: str) -> tuple[bool, bool]:
        """Return whether a context may allow the math kernel of attention, and the flash kernel."""
        given: Mapping[str | None, ast.expr] = {each.arg: each.value for each in call.keywords}
        if name == _OLD_KERNEL:
            given = _by_name(call, given)
            flash, math = (not _is_false(given.get(each)) for each in _OLD_SWITCHES[:2])
            return math, flash
        backends = next(iter(call.args), given.get("backends"))
        each = backends.elts if isinstance(backends, (ast.List, ast.Tuple)) else [backends]
        names = [(backend and self.facts.resolve(backend)) or "" for backend in each]
        if not names or not all(".SDPBackend." in name for name in names):
            return True, True
        math, flash = (any(name.endswith(f".{kernel}") for name in names) for kernel in ATTENTION)
        return math, flash

    def _has_dropout(self, call: ast.Call) -> bool:
        """Return whether attention in the `with` statement of a call may have dropout."""
        item = self.facts.tree.parents[call]
        statement = self.facts.tree.parents[item] if isinstance(item, ast.withitem) else None
        if not isinstance(statement, (ast.With, ast.AsyncWith)):
            return False
        lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        return any(
            isinstance(node, ast.Call) and last_name(node.func) == _ATTENTION and _may_drop(node)
            for node in self.facts.tree.nodes_with(_ATTENTION)
            if getattr(node, "lineno", 0) in lines
        )

    def _is_off(self, switch: str) -> bool:
        """Return whether a module disables a kernel wherever it sets its switch."""
        calls = [
            node
            for node in self.facts.tree.nodes_with(switch.rpartition(".")[2])
            if isinstance(node, ast.Call) and self.facts.resolve(node.func) == switch
        ]
        return bool(calls) and all(
            bool(call.args) and _is_false(call.args[0]) and not self.facts.is_guarded(call) for call in calls
        )


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _by_name(call: ast.Call, given: Mapping[str | None, ast.expr]) -> Mapping[str | None, ast.expr]:
    """Return the arguments of `sdp_kernel` by name; none of those behind a starred one are known."""
    positional = zip(_OLD_SWITCHES, call.args, strict=False)
    return {**given} | {
        name: value for name, value in positional if not isinstance(call.args[0], ast.Starred)
    }


def _may_drop(call: ast.Call) -> bool:
    """Return whether a call of attention has dropout, as far as its arguments show."""
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "dropout_p"), None)
    dropout = call.args[_DROPOUT] if len(call.args) > _DROPOUT else given
    return dropout is not None and not (isinstance(dropout, ast.Constant) and not dropout.value)
