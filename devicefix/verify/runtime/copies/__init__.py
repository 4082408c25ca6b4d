"""The watch for copy hazards: memory that CUDA would have copied, changed while both sides are in use.

On CUDA `.cpu()`, `.cuda()` and `.to()` copy; on a CPU they return the tensor itself. If the program then
changes one side in place and reads the other, it computes other results than with CUDA, without an error.
`install` reports these places.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from devicefix.verify.runtime.copies.intent import HOST
from devicefix.verify.runtime.copies.watch import Watch
from devicefix.verify.runtime.eager import in_threads, run_eagerly
from devicefix.verify.runtime.ending import after_fork, at_end
from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.plan import Plan
from devicefix.verify.runtime.site import Sites


def install(_: Plan, events: Events, sites: Sites) -> None:
    """Watch this process until it ends.

    Each hazard is recorded once as an event "copy", with `what` ("tensor", "numpy view" or "numpy buffer"),
    `moved` and `changed` (file and line; `changed` is None if unknown) and `move`.
    An error in the watch itself is recorded as "trouble".

    Args:
        events: the recorder of events.
        sites: finds the program's own lines.
    """
    run_eagerly()
    watch = Watch(events, sites)
    _hook_what_modes_do_not_see(watch)
    _hook_swaps(watch)
    _keep_fast_paths()
    at_end(lambda: watch.guarded(watch.ledger.finish))
    after_fork(watch.ledger.clear)  # the parent reports its hazards
    threading.Thread._bootstrap_inner = in_threads(watch)  # type: ignore[attr-defined]
    watch.__enter__()  # type: ignore[no-untyped-call]


def _hook_what_modes_do_not_see(watch: Watch) -> None:
    """Patch `torch.from_numpy`, subclasses and custom autograd functions, which a mode misses."""

    def derived(result: Any, _: Any, data: Any = None, *__: Any, **___: Any) -> None:
        watch.derived(data, result)

    tensor: Any = torch.Tensor
    torch.from_numpy = _noting(torch.from_numpy, lambda made, array: watch.wrapped(array, made))
    tensor.as_subclass = _noting(tensor.as_subclass, lambda made, data, *_, **__: watch.derived(data, made))
    tensor._make_subclass = staticmethod(_noting(tensor._make_subclass, derived))
    for owner in (torch.nn.Parameter, torch.autograd.Variable):
        make: Any = owner.__new__
        owner.__new__ = staticmethod(_noting(make, derived))  # type: ignore[method-assign]
    apply = torch.autograd.Function.__dict__["apply"]  # a class method, in C since torch 2.14

    def watched_apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return watch.applied(apply.__get__(None, cls), args, kwargs)

    torch.autograd.Function.apply = classmethod(watched_apply)  # type: ignore[method-assign,assignment]


def _noting(function: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    """Return a function that calls another one with its result and its arguments."""

    def noting(*args: Any, **kwargs: Any) -> Any:  # torch compares the signature with that of its own
        result = function(*args, **kwargs)
        note(result, *args, **kwargs)
        return result

    return noting


def _hook_swaps(watch: Watch) -> None:
    """Patch `torch.utils.swap_tensors`, which refuses tensors with weak references, as the watch has."""
    swap: Any = getattr(torch.utils, "swap_tensors", None)  # since torch 2.3

    def watched_swap(t1: torch.Tensor, t2: torch.Tensor) -> None:
        for tensor in (t1, t2):
            watch.ledger.set_side(tensor, HOST)  # drops the reference, and what is known of the tensor
        swap(t1, t2)

    if swap is not None:
        torch.utils.swap_tensors = watched_swap


def _keep_fast_paths() -> None:
    """Keep the fast paths of transformer layers, which they leave if a mode is active."""
    disabled = torch._C._disabled_torch_function_impl

    def has_torch_function(arguments: Any) -> bool:
        return any(
            type(value) not in (torch.Tensor, torch.nn.Parameter, type(None))
            and getattr(type(value), "__torch_function__", disabled) is not disabled
            for value in arguments
        )

    torch.overrides.has_torch_function = has_torch_function  # type: ignore[assignment]
