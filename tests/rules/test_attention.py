"""Attention of flash-attn and xformers, rewritten, against what the libraries document.

The definitions here are written out from their documentation, head by head and query by query.
"""

from __future__ import annotations

import math
import sys
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project, ProjectFile

if TYPE_CHECKING:
    from torch import Tensor

pytestmark = pytest.mark.needs("torch")

BATCH, HEADS, WIDTH = 2, 4, 8


@cache
def rewritten(code: str) -> str:
    """Return a module with safe and unsafe fixes made, which must leave nothing to report."""
    data = code.encode()
    result = check_file(data, "module.py", Settings(fix=True, unsafe_fixes=True), _project(data))
    assert result.output is not None
    assert not check_file(result.output, "module.py", Settings(), _project(result.output)).findings
    return result.output.decode()


def _project(data: bytes) -> Project:
    return Project([ProjectFile(data, "module.py")])


def run(code: str, **given: Any) -> dict[str, Any]:
    """Return the names of a rewritten module after its run on a CPU."""
    names = dict(given)
    exec(rewritten(code), names)
    return names


def attention(query: Tensor, key: Tensor, value: Tensor, scale: float, bias: Tensor) -> Tensor:
    """Return the attention of one head: tensors of (sequence, width), and what is added to each score."""
    import torch

    rows = []
    for number, row in enumerate(query):
        scores = key @ row * scale + bias[number]
        none = torch.isinf(scores).all()
        rows.append(torch.zeros(value.shape[1]) if none else torch.softmax(scores, 0) @ value)
    return torch.stack(rows)


def flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """Return what flash-attn documents: the heads behind the sequence, a mask that ends at the last key."""
    import torch

    queries, keys = q.shape[1], k.shape[1]
    bias = torch.zeros(queries, keys)
    for i in range(queries):
        for j in range(keys):
            ahead = j - (i + keys - queries)
            if causal and ahead > 0:
                bias[i, j] = -math.inf
    out = torch.empty(*q.shape[:3], v.shape[3])
    for batch in range(q.shape[0]):
        for head in range(q.shape[2]):
            of_keys = head // (q.shape[2] // k.shape[2])
            parts = q[batch, :, head], k[batch, :, of_keys], v[batch, :, of_keys]
            out[batch, :, head] = attention(*parts, scale or q.shape[3] ** -0.5, bias)
    return out


def xformers(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """Return what xformers documents: the heads behind the sequence, and in front of it in the mask."""
    import torch

    out = torch.empty(*q.shape[:3], v.shape[3])
    for batch in range(q.shape[0]):
        for head in range(q.shape[2]):
            parts = q[batch, :, head], k[batch, :, head], v[batch, :, head]
            added = torch.zeros(q.shape[1], k.shape[1]) if bias is None else bias[batch, head]
            out[batch, :, head] = attention(*parts, scale or q.shape[3] ** -0.5, added)
    return out


def tensors(queries: int, keys: int, heads_of_keys: int = HEADS, width: int = WIDTH) -> tuple[Tensor, ...]:
    import torch

    torch.manual_seed(0)
    return (
        torch.randn(BATCH, queries, HEADS, WIDTH),
        torch.randn(BATCH, keys, heads_of_keys, WIDTH),
        torch.randn(BATCH, keys, heads_of_keys, width),
    )


def close(one: Tensor, other: Tensor) -> bool:
    """Return whether tensors are equal but for rounding, and the first can be viewed in another shape."""
    import torch

    one.view(-1)
    return one.shape == other.shape and torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("heads", [4, 2, 1])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (2, 5), (5, 2), (1, 7)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_flash_attn_func(queries: int, keys: int, heads: int, causal: bool, scale: float | None) -> None:
    q, k, v = tensors(queries, keys, heads)
    code = """
        import torch
        import torch.nn.functional as F
        from flash_attn import flash_attn_func

        one = flash_attn_func(q, k, v, 0.0, scale, causal)
        two = flash_attn_func(q, v=v, k=k, causal=causal, softmax_scale=scale)
    """
    found = run(_dedented(code), q=q, k=k, v=v, causal=causal, scale=scale)
    expected = flash(q, k, v, scale, causal)
    assert close(found["one"], expected) and close(found["two"], expected)


def test_half_precision_and_gradients() -> None:
    import torch

    q, k, v = (each.bfloat16().requires_grad_() for each in tensors(5, 2, 2))
    code = """
        import torch
        from flash_attn import flash_attn_func

        y = flash_attn_func(q, k, v, causal=True)
        y.sum().backward()
    """
    found = run(_dedented(code), q=q, k=k, v=v)
    assert found["y"].dtype == torch.bfloat16
    assert all(each.grad is not None and each.grad.isfinite().all() for each in (q, k, v))


@pytest.mark.parametrize("mask", ["none", "tensor"])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize(("queries", "keys", "width"), [(5, 5, 8), (2, 5, 3), (5, 2, 8)])
def test_memory_efficient_attention(
    queries: int, keys: int, width: int, mask: str, scale: float | None
) -> None:
    import torch

    q, k, v = tensors(queries, keys, width=width)
    biases = {
        "none": None,
        "tensor": torch.randn(BATCH, HEADS, queries, keys),
    }
    code = """
        import torch
        import xformers.ops as xops

        y = xops.memory_efficient_attention(q, k, v, attn_bias=bias, p=0.0, scale=scale)
    """
    found = run(_dedented(code), q=q, k=k, v=v, bias=biases[mask], scale=scale)
    assert close(found["y"], xformers(q, k, v, biases[mask], scale))


def test_memory_efficient_attention_of_other_ranks() -> None:
    import torch

    q, k, v = (torch.randn(BATCH, 5, 3, 2, WIDTH) for _ in range(3))  # groups of heads
    code = """
        import torch
        from xformers.ops import memory_efficient_attention

        y = memory_efficient_attention(q, k, v)
        z = memory_efficient_attention(q[:, :, 0, 0], k[:, :, 0, 0], v[:, :, 0, 0], bias)
    """
    bias = torch.randn(BATCH, 5, 5)
    found = run(_dedented(code), q=q, k=k, v=v, bias=bias)
    assert close(found["y"], xformers(q.flatten(2, 3), k.flatten(2, 3), v.flatten(2, 3)).view_as(q))
    alone = q[:, :, 0, :1], k[:, :, 0, :1], v[:, :, 0, :1]
    assert close(found["z"], xformers(*alone, bias[:, None])[:, :, 0])


def test_the_library_is_called_with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    library = ModuleType("flash_attn")
    library.flash_attn_func = lambda *args, **options: (args, options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_attn", library)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    code = "import torch\nimport flash_attn\ny = flash_attn.flash_attn_func(1, 2, v=3, causal=True)\n"
    assert run(code)["y"] == ((1, 2), {"v": 3, "causal": True})


def _dedented(code: str) -> str:
    import textwrap

    return textwrap.dedent(code).lstrip("\n")
