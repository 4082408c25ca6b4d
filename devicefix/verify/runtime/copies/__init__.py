"""The watch for copy hazards: memory that CUDA would have copied, changed while both sides are in use.

On CUDA `.cpu()`, `.cuda()` and `.to()` copy; on a CPU they return the tensor itself. If the program then
changes one side in place and reads the other, it computes other results than with CUDA, without an error.
`install` reports these places.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from devicefix.verify.runtime.copies.watch import Watch
from devicefix.verify.runtime.eager import run_eagerly
from devicefix.verify.runtime.ending import after_fork, at_end
from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.plan import Plan
from devicefix.verify.runtime.site import Sites


def install(_: Plan, events: Events, sites: Sites) -> None:
    """Watch this process until it ends.

    Each hazard is recorded once as an event "copy", with `what` ("tensor", "numpy view", "numpy buffer",
    "parameter" or "leaf"), `moved` and `changed` (file and line; `changed` is None if unknown) and `move`.
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
    _check_at_end(watch)
    _enter_in_threads(watch)
    watch.__enter__()  # type: ignore[no-untyped-call]
    watch.measure()


def _hook_what_modes_do_not_see(watch: Watch) -> None:
    """Patch `torch.from_numpy`, subclasses, parameters and custom autograd functions, which a mode misses."""
    from_numpy, make, convert, new, variable, register = (
        torch.from_numpy,
        torch.Tensor._make_subclass,
        torch.Tensor.as_subclass,
        torch.nn.Parameter.__new__,
        torch.autograd.Variable.__new__,
        torch.nn.Module.register_parameter,
    )
    add = torch.optim.Optimizer.add_param_group
    apply = torch.autograd.Function.__dict__["apply"]  # a class method, in C since torch 2.14

    def watched_from_numpy(array: Any, /) -> torch.Tensor:
        tensor = from_numpy(array)
        watch.wrapped(array, tensor)
        return tensor

    def watched_make(*args: Any, **kwargs: Any) -> Any:  # torch compares the signature with that of its own
        result = make(*args, **kwargs)
        watch.derived(args[1] if len(args) > 1 else kwargs.get("data"), result)
        return result

    def watched_convert(self: torch.Tensor, cls: Any) -> Any:
        result = convert(self, cls)
        watch.derived(self, result)
        return result

    def watched_new(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        parameter = new(cls, data, requires_grad)
        watch.derived(data, parameter)
        return parameter

    def watched_variable(cls: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        result = variable(cls, data, *args, **kwargs)
        watch.derived(data, result)
        return result

    def watched_register(self: torch.nn.Module, name: str, param: Any) -> None:
        register(self, name, param)
        watch.registered(param)

    def watched_add(self: torch.optim.Optimizer, param_group: dict[str, Any]) -> None:
        add(self, param_group)
        watch.optimized(param_group["params"])

    def watched_apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return watch.applied(apply.__get__(None, cls), args, kwargs)

    torch.from_numpy = watched_from_numpy  # type: ignore[assignment]
    torch.Tensor._make_subclass = staticmethod(watched_make)  # type: ignore[method-assign]
    torch.Tensor.as_subclass = watched_convert  # type: ignore[method-assign,assignment]
    torch.nn.Parameter.__new__ = staticmethod(watched_new)  # type: ignore[method-assign]
    torch.autograd.Variable.__new__ = staticmethod(watched_variable)  # type: ignore[method-assign]
    torch.nn.Module.register_parameter = watched_register  # type: ignore[method-assign]
    torch.optim.Optimizer.add_param_group = watched_add  # type: ignore[method-assign]
    torch.autograd.Function.apply = classmethod(watched_apply)  # type: ignore[method-assign,assignment]


def _hook_swaps(watch: Watch) -> None:
    """Patch `torch.utils.swap_tensors`, which refuses tensors with weak references, as the watch has."""
    swap: Any = getattr(torch.utils, "swap_tensors", None)  # since torch 2.3

    def watched_swap(t1: torch.Tensor, t2: torch.Tensor) -> None:
        watch.exchange(t1, t2, lambda: swap(t1, t2))

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


def _check_at_end(watch: Watch) -> None:
    ledger = watch.ledger
    at_end(lambda: watch.guarded(ledger.finish))
    after_fork(ledger.clear)  # the parent reports its hazards


def _enter_in_threads(watch: Watch) -> None:
    """Enter the watch in every new thread, since a mode applies to one thread only."""
    bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def watched_bootstrap(self: threading.Thread) -> None:
        with watch:
            bootstrap(self)

    threading.Thread._bootstrap_inner = watched_bootstrap  # type: ignore[attr-defined]
