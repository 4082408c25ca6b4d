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
from devicefix.verify.runtime.machine.places import FREE, HOST, place_of, put


def install(patches: Patches) -> None:
    """Make the functions check devices as CUDA does.

    Args:
        patches: records the replacements.
    """
    patches.set(torch.autograd, "_make_grads", _checked(torch.autograd._make_grads, _check_grads))
    for owner in (torch, torch.random):
        patches.set(owner, "set_rng_state", _checked(owner.set_rng_state, check_state))
    patches.set(torch, "ctc_loss", _ctc_loss(torch.ctc_loss))
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


def _checked(original: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    """Make a function check its arguments first."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return original(*args, **kwargs)

    return call


def check_state(new_state: torch.Tensor) -> None:
    """Check the state of a random generator, which is always on the CPU.

    Raises:
        TypeError: it is on a GPU.
    """
    if place_of(new_state) >= 0:
        raise TypeError("RNG state must be a torch.ByteTensor")


def _check_grads(outputs: Any, grads: Any, *_: Any, **__: Any) -> None:
    """Check the gradients that a program passes to `backward` and `autograd.grad`."""
    for number, (output, grad) in enumerate(zip(outputs, grads, strict=False)):
        if not (isinstance(output, torch.Tensor) and isinstance(grad, torch.Tensor)):
            continue
        if grad.dim() and place_of(grad) not in (place_of(output), FREE):
            found = f"expected device {output.device} but got {grad.device}"
            raise RuntimeError(f"invalid gradient at index {number} - {found}")


def _ctc_loss(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give `ctc_loss` the lengths as numbers: its variant for tensors is for cuDNN."""

    @functools.wraps(original)
    def ctc_loss(log_probs: Any, targets: Any, *lengths: Any, **options: Any) -> Any:
        numbers = [each.tolist() if isinstance(each, torch.Tensor) else each for each in lengths[:2]]
        return original(log_probs, targets, *numbers, *lengths[2:], **options)

    return ctc_loss


def _from_dlpack(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def from_dlpack(ext_tensor: Any, **options: Any) -> Any:
        made = original(ext_tensor, **options)
        return put(made, place_of(ext_tensor)) if isinstance(ext_tensor, torch.Tensor) else made

    return from_dlpack
