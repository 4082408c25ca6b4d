"""Summaries of tensors, which can be compared exactly or within a tolerance.

Reading a tensor must have no side effects: nothing here is recorded by autograd, reaches a mode, draws a
random number, or starts the threads of OpenMP, which hang in the fork of a process that has used them.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Iterator
from typing import Any

import torch

_BLOCK = 1 << 14  # elements; for so few torch uses the calling thread only
_SAMPLES = 8

# The functions of torch itself, without the watches and the simulated CUDA machine.
_BASE: Any = torch._C.TensorBase
_item, _to, _cpu = _BASE.item, _BASE.to, _BASE.cpu
_device = _BASE.device.__get__
_is_wrapped = getattr(torch._C._functorch, "is_functorch_wrapped_tensor", lambda _: False)


def summarize(tensor: torch.Tensor, device: str | None = None) -> dict[str, Any]:
    """Summarize a tensor as JSON.

    Args:
        tensor: any tensor.
        device: the device that the program sees; None for the real one.

    Returns:
        `dtype`, `shape` and `device`; for a single element `item`; for more, the `digest` of the bytes, a
        `sample` of the elements, and the `mean` and `abs` (the mean of the absolute values) of the finite
        ones, with `nonfinite` (the number of others) if there are any. A complex number counts as two.
    """
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        summary: dict[str, Any] = {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": [] if tensor.is_nested else list(tensor.shape),
            "device": device or str(_device(tensor)),
        }
        if _is_readable(tensor):
            if tensor.numel() == 1 and tensor.layout is torch.strided and not tensor.is_complex():
                summary["item"] = _item(tensor)
            elif tensor.numel():
                with torch.no_grad():
                    summary.update(_statistics(_plain(tensor)))
    return summary


def _is_readable(tensor: torch.Tensor) -> bool:
    if _device(tensor).type == "meta" or tensor.is_nested or _is_wrapped(tensor):
        return False
    return type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor of any layout, on the CPU."""
    if tensor.layout is torch.sparse_coo:
        tensor = tensor._values()
    elif tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        tensor = tensor.values()
    elif tensor.is_mkldnn:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    return tensor if _device(tensor).type == "cpu" else _cpu(tensor)


def _statistics(tensor: torch.Tensor) -> dict[str, Any]:
    digest = hashlib.blake2b(digest_size=16)
    count = tensor.numel() * (2 if tensor.is_complex() else 1)
    wanted = sorted({i * (count - 1) // (_SAMPLES - 1) for i in range(_SAMPLES)})
    sample: list[float] = []
    total = absolute = 0.0
    start = finite = 0
    for block in _blocks(tensor):
        digest.update((ctypes.c_char * (block.numel() * block.element_size())).from_address(block.data_ptr()))
        numbers = _to(block, torch.float64)
        end = start + numbers.numel()
        sample += [_item(numbers[i - start]) for i in wanted[len(sample) :] if i < end]
        start = end
        if not math.isfinite(_item(numbers.sum())):
            numbers = numbers[numbers.isfinite()]
        finite += numbers.numel()
        total += _item(numbers.sum())
        absolute += _item(numbers.abs_().sum())
    found: dict[str, Any] = {"digest": digest.hexdigest(), "sample": sample}
    found.update(mean=total / max(finite, 1), abs=absolute / max(finite, 1))
    return found if finite == count else {**found, "nonfinite": count - finite}


def _blocks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the elements in order, in contiguous blocks, without copying the whole tensor."""
    if tensor.numel() <= _BLOCK:
        tensor = tensor.resolve_conj().resolve_neg().contiguous()
        yield (torch.view_as_real(tensor) if tensor.is_complex() else tensor).view(-1)
        return
    rows = _BLOCK * tensor.shape[0] // tensor.numel()
    for i in range(0, tensor.shape[0], max(rows, 1)):
        yield from _blocks(tensor[i : i + rows] if rows else tensor[i])
