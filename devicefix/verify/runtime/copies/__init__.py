"""Copies that a CPU does not make: memory that CUDA would have copied, changed while both sides live.

On CUDA `.cpu()`, `.cuda()` and `.to()` copy; on a CPU they return the tensor that they were given. Where the
program then changes one side in place and reads the other, it computes something else than with CUDA, and
nothing fails. `install` makes that show.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import torch

from devicefix.verify.runtime.copies.watch import Watch
from devicefix.verify.runtime.eager import run_eagerly
from devicefix.verify.runtime.ending import at_end
from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.plan import Plan
from devicefix.verify.runtime.site import Sites


def install(plan: Plan, events: Events, sites: Sites) -> None:
    """Watch this process from now on, until it ends.

    Each hazard is emitted once as an event "copy", with `what` ("tensor", "numpy view", "numpy buffer" or
    "parameter"), `moved` and `changed` (file and line, `changed` None where it is not known) and `move`. What
    goes wrong in the watch itself is emitted as "trouble".

    Args:
        plan: the run.
        events: where to write what is found.
        sites: what tells the program's own lines.
    """
    run_eagerly()
    watch = Watch(events, sites)
    _hook_what_modes_do_not_see(watch)
    _keep_fast_paths()
    _check_at_end(watch)
    _enter_in_threads(watch)
    watch.__enter__()  # type: ignore[no-untyped-call]


def _hook_what_modes_do_not_see(watch: Watch) -> None:
    """`torch.from_numpy`, parameters and custom autograd functions pass by a TorchFunctionMode."""
    from_numpy, new, register = (
        torch.from_numpy,
        torch.nn.Parameter.__new__,
        torch.nn.Module.register_parameter,
    )
    apply = torch.autograd.Function.__dict__["apply"].__func__

    def watched_from_numpy(array: Any, /) -> torch.Tensor:
        tensor = from_numpy(array)
        watch.wrapped(array, tensor)
        return tensor

    def watched_new(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        parameter = new(cls, data, requires_grad)
        watch.derived(data, parameter)
        return parameter

    def watched_register(self: torch.nn.Module, name: str, param: Any) -> None:
        register(self, name, param)
        watch.registered(param)

    def watched_apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return watch.applied(lambda *args, **kwargs: apply(cls, *args, **kwargs), args, kwargs)

    torch.from_numpy = watched_from_numpy  # type: ignore[assignment]
    torch.nn.Parameter.__new__ = staticmethod(watched_new)  # type: ignore[method-assign]
    torch.nn.Module.register_parameter = watched_register  # type: ignore[method-assign]
    torch.autograd.Function.apply = classmethod(watched_apply)  # type: ignore[method-assign,assignment]


def _keep_fast_paths() -> None:
    """Let transformer layers compute as they do without a mode: they ask for subclasses, and get a yes."""
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
    at_end(lambda: ledger.guarded(ledger.finish))
    os.register_at_fork(after_in_child=ledger.clear)  # what is behind is the parent's to report


def _enter_in_threads(watch: Watch) -> None:
    """A mode holds for one thread only."""
    bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def watched_bootstrap(self: threading.Thread) -> None:
        with watch:
            bootstrap(self)

    threading.Thread._bootstrap_inner = watched_bootstrap  # type: ignore[attr-defined]
