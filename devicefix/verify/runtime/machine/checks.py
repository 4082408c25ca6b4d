"""Checks of CUDA in functions that the dispatch mode sees only as their parts, or too late.

What the functions accept was tried on CUDA with torch 2.11.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from devicefix.verify.runtime.machine.kernels import different
from devicefix.verify.runtime.machine.patches import Patches
from devicefix.verify.runtime.machine.places import FREE, HOST, place_of, put, tensors


def install(patches: Patches) -> None:
    """Make the functions check devices as CUDA does.

    Args:
        patches: records the replacements.
    """
    patches.set(torch.Tensor, "index_fill_", _filled(torch.Tensor.index_fill_))
    for owner in (torch, torch.functional):
        patches.set(owner, "meshgrid", _meshgrid(torch.meshgrid))
    patches.set(torch, "ctc_loss", _ctc_loss(torch.ctc_loss))
    patches.set(torch, "tensor_split", _tensor_split(torch.tensor_split))
    patches.set(torch.Tensor, "tensor_split", _tensor_split(torch.Tensor.tensor_split))
    patches.set(torch.autograd, "_make_grads", _make_grads(vars(torch.autograd)["_make_grads"]))
    for owner in (torch, torch.random):
        patches.set(owner, "set_rng_state", _set_rng_state(torch.set_rng_state))
    dlpack: Any = torch.utils.dlpack
    for owner in (torch, dlpack):
        patches.set(owner, "from_dlpack", _from_dlpack(dlpack.from_dlpack))


def common_place(given: Iterable[torch.Tensor]) -> int:
    """Return the place of tensors.

    Raises:
        RuntimeError: they are on several devices.
    """
    places = {place_of(tensor) for tensor in given} - {FREE}
    if len(places) > 1:
        raise different(places)
    return places.pop() if places else HOST


def check_state(state: torch.Tensor) -> None:
    """Check the state of a random generator, which is always on the CPU.

    Raises:
        TypeError: it is on a GPU.
    """
    if place_of(state) >= 0:
        raise TypeError("RNG state must be a torch.ByteTensor")


def _filled(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make `index_fill_` reject an index on another device, which `x[index] = 1` moves."""

    @functools.wraps(original)
    def index_fill_(tensor: torch.Tensor, dim: Any, index: Any, value: Any) -> Any:
        if isinstance(index, torch.Tensor):
            common_place([tensor, index])
        return original(tensor, dim, index, value)

    return index_fill_


def _meshgrid(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def meshgrid(*given: Any, **options: Any) -> Any:
        if len({place_of(tensor) for tensor in tensors(given)} - {FREE}) > 1:
            raise RuntimeError("meshgrid expects all tensors to have the same device")
        return original(*given, **options)

    return meshgrid


def _tensor_split(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def tensor_split(given: torch.Tensor, *where: Any, **options: Any) -> Any:
        for index in tensors([*where, *options.values()]):
            if place_of(index) >= 0:
                raise RuntimeError("tensor_split expected tensor_indices_or_sections to be on cpu")
        return original(given, *where, **options)

    return tensor_split


def _make_grads(original: Callable[..., Any]) -> Callable[..., Any]:
    """Check the gradients that a program passes to `backward` and `autograd.grad`."""

    @functools.wraps(original)
    def make_grads(outputs: Any, grads: Any, *options: Any, **named: Any) -> Any:
        for number, (output, grad) in enumerate(zip(outputs, grads, strict=False)):
            if not (isinstance(output, torch.Tensor) and isinstance(grad, torch.Tensor)):
                continue
            if grad.dim() and place_of(grad) not in (place_of(output), FREE):
                raise RuntimeError(
                    f"invalid gradient at index {number} - expected device {output.device}"
                    f" but got {grad.device}"
                )
        return original(outputs, grads, *options, **named)

    return make_grads


def _ctc_loss(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give `ctc_loss` the lengths as numbers: its variant for tensors is for cuDNN."""

    @functools.wraps(original)
    def ctc_loss(log_probs: Any, targets: Any, *lengths: Any, **options: Any) -> Any:
        numbers = [each.tolist() if isinstance(each, torch.Tensor) else each for each in lengths[:2]]
        return original(log_probs, targets, *numbers, *lengths[2:], **options)

    return ctc_loss


def _set_rng_state(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def set_rng_state(new_state: torch.Tensor) -> None:
        check_state(new_state)
        original(new_state)

    return set_rng_state


def _from_dlpack(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def from_dlpack(ext_tensor: Any, **options: Any) -> Any:
        made = original(ext_tensor, **options)
        return put(made, place_of(ext_tensor)) if isinstance(ext_tensor, torch.Tensor) else made

    return from_dlpack
