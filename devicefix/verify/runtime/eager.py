"""Run code uncompiled and let threads enter modes, as modes need it, and find the tensors of a call."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from devicefix.verify.runtime.imported import when_imported


def run_eagerly() -> None:
    """Make functions that are passed to `torch.compile` run uncompiled.

    A watch does not see the operations of compiled code, and TorchDynamo does not support a mode that is
    always on.
    """
    if hasattr(torch.compiler if hasattr(torch, "compiler") else None, "set_stance"):
        when_imported("torch._dynamo", lambda: torch.compiler.set_stance("force_eager"))
        return
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    config = sys.modules.get("torch._dynamo.config")
    if config is not None:
        config.disable = True  # type: ignore[attr-defined]
    _wrap_modules()


def _wrap_modules() -> None:
    """Make `torch.compile` return a wrapper of a module, as it does where TorchDynamo is not disabled."""
    original: Any = torch.compile

    @functools.wraps(original)
    def compile_(model: Any = None, **options: Any) -> Any:
        if not isinstance(model, torch.nn.Module):
            return original(model, **options) if model is not None else partial(compile_, **options)
        wrapped: Any = torch._dynamo.disable(model)  # type: ignore[no-untyped-call]
        return wrapped if isinstance(wrapped, torch.nn.Module) else model  # a function in torch 2.0

    torch.compile = compile_


def in_threads(mode: AbstractContextManager[Any]) -> Callable[[threading.Thread], None]:
    """Return a `threading.Thread._bootstrap_inner` that enters a mode, which applies to one thread only."""
    bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def _bootstrap_inner(thread: threading.Thread) -> None:
        with mode:
            bootstrap(thread)

    return _bootstrap_inner


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield a tensor, or those in nested lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from tensors(inner)
