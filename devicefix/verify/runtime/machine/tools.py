"""Compilers, exporters and profilers of torch, which do not support the simulated machine."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from devicefix.verify.runtime.imported import when_imported
from devicefix.verify.runtime.machine import autocast, lacking
from devicefix.verify.runtime.machine.patches import Patches
from devicefix.verify.runtime.machine.places import put
from devicefix.verify.runtime.machine.state import Machine

_SCRIPTED = ("save", "save_to_buffer", "graph", "inlined_graph", "code")


def install(machine: Machine, patches: Patches) -> None:
    """Make compiled functions run uncompiled, and export and save them on a plain CPU.

    Compiled code would hide operations from the mode, and the devices of its tensors from itself.

    Args:
        machine: the machine.
        patches: records the replacements.
    """
    tools = Tools(machine, patches)
    patches.set(torch, "compile", lacking.noted(_compile, "torch.compile"))
    patches.set(torch.jit._state._enabled, "enabled", False)
    for name in ("script", "trace", "trace_module"):
        patches.set(torch.jit, name, lacking.noted(tools.uncompiled(getattr(torch.jit, name)), "TorchScript"))
    for name in ("freeze", "optimize_for_inference", "optimize_frozen_module"):
        patches.set(torch.jit, name, _unless_uncompiled(getattr(torch.jit, name, None)))
    patches.set(torch.jit, "load", tools.load)
    patches.set(torch.nn.Module, "__getattr__", tools.scripted(torch.nn.Module.__getattr__))
    exporter: Any = getattr(torch, "export", None)
    for name in ("export", "export_for_training"):
        if hasattr(exporter, name):
            patches.set(exporter, name, lacking.noted(tools.plainly(getattr(exporter, name)), "torch.export"))
    when_imported("torch.utils.cpp_extension", lambda: _with_toolkit(patches))
    profiler: Any = sys.modules["torch.autograd.profiler"]
    patches.set(profiler.profile, "__init__", _without_gpu_events(profiler.profile.__init__))
    activities: Any = torch.profiler.ProfilerActivity
    own = getattr(activities, machine.type.upper(), None)
    if own is not None and machine.type != "cuda":
        supported = {*profiler._supported_activities(), own}
        for owner in (torch.autograd, profiler):
            patches.set(owner, "_supported_activities", lambda: supported)
    patches.set(profiler.emit_nvtx, "__enter__", lambda self: self)
    patches.set(profiler.emit_nvtx, "__exit__", lambda *_: None)


def _with_toolkit(patches: Patches) -> None:
    """Give the machine the folder of a toolkit, though there is no compiler in it."""
    extensions: Any = sys.modules["torch.utils.cpp_extension"]
    if extensions.CUDA_HOME is None:
        patches.set(extensions, "CUDA_HOME", "/usr/local/cuda")


def _compile(model: Any = None, **_: Any) -> Any:
    if model is None:
        return _compile
    if not isinstance(model, torch.nn.Module):
        return model
    from torch._dynamo.eval_frame import OptimizedModule  # the state of one has the prefix `_orig_mod.`

    return OptimizedModule(model, lambda function: function)  # type: ignore[arg-type]  # it need not compile


def _unless_uncompiled(original: Any) -> Callable[..., Any]:
    """Make a function of TorchScript return a module that is not compiled unchanged."""

    def call(module: Any, *args: Any, **kwargs: Any) -> Any:
        return original(module, *args, **kwargs) if isinstance(module, torch.jit.ScriptModule) else module

    return call


def _without_gpu_events(original: Callable[..., None]) -> Callable[..., None]:
    """Make the profiler record no events of GPUs, each of which would print an error."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        states: Any = torch._C._profiler.ProfilerState
        if self.profiler_kind == states.KINETO_GPU_FALLBACK:
            self.profiler_kind = states.KINETO
        if self.enabled:
            self.kineto_activities &= {torch.profiler.ProfilerActivity.CPU}

    return __init__


class Tools:
    """The functions that run on a plain CPU, with the patches undone.

    Args:
        machine: the machine.
        patches: all patches of the machine.
    """

    def __init__(self, machine: Machine, patches: Patches) -> None:
        self._machine = machine
        self._patches = patches
        self._compilers: Any = weakref.WeakKeyDictionary()  # how to compile modules and functions
        self._load: Any = torch.jit.load

    def plainly(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function run on a plain CPU: all tensors are on the CPU."""

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._patches.undone(), _disable_current_modes():
                autocast.use(False)
                try:
                    return original(*args, **kwargs)
                finally:
                    autocast.use(self._machine.autocast)

        return call

    def uncompiled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make a compiler of TorchScript return the module or function, which it can still save."""

        @functools.wraps(original)
        def compiler(target: Any = None, *args: Any, **kwargs: Any) -> Any:
            made = original(target, *args, **kwargs)
            if made is target and callable(target):
                self._compilers[target] = functools.partial(self.plainly(original), target, *args, **kwargs)
                if not isinstance(target, torch.nn.Module):
                    target.save = functools.partial(self._save, target)
            return made

        return compiler

    def scripted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Let modules that the program compiles have the attributes of compiled ones."""

        def __getattr__(module: torch.nn.Module, name: str) -> Any:
            if name not in _SCRIPTED or module not in self._compilers:
                return original(module, name)
            return self._compiled(module, name)

        return __getattr__

    def _compiled(self, target: Any, name: str) -> Any:
        """Return an attribute of a compiled module or function."""
        value = getattr(self._compilers[target](), name)
        return self.plainly(value) if callable(value) else value

    def _save(self, function: Any, *arguments: Any) -> None:
        self._compiled(function, "save")(*arguments)

    def load(self, f: Any, map_location: Any = None, *arguments: Any, **options: Any) -> Any:
        """Replace `torch.jit.load`."""
        module = self._load(f, "cpu", *arguments, **options)
        if map_location is not None:
            place = self._machine.index(map_location)
            for tensor in (*module.parameters(), *module.buffers()):
                put(tensor, place)
        return module
