"""Requests for CUDA on a machine without it. Each is recorded, even if the program catches the error."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import torch

from devicefix.verify.runtime.errors import text
from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.no_cuda import NO_CUDA
from devicefix.verify.runtime.site import OURS, Sites

_PARTS = ("", ".memory", ".random", ".nvtx", ".nccl", ".streams", ".graphs")
# Where questions about CUDA pass through, and the folders of the compiler that asks them.
_QUESTIONS = frozenset({"cuda", "accelerator", "device_interface.py", "_triton.py"})
_COMPILER = frozenset({"_inductor", "_functorch"})

Function = Callable[..., Any]
Answer = Callable[..., Any]


class Requests:
    """The recorder of requests for CUDA, which can also answer them.

    Args:
        events: the recorder of events.
        sites: finds the line that makes a request.
        answer: returns the answer to a request, given the name of the call and its arguments; None to let the
            error through.
    """

    def __init__(self, events: Events, sites: Sites, answer: Answer | None = None) -> None:
        self._events = events
        self._sites = sites
        self._answer = answer
        self._recorded: BaseException | None = None
        self._initialize: Function = torch.cuda._lazy_init

    def note(self, call: str, problem: BaseException | None = None) -> None:
        """Record a request.

        Args:
            call: the name of the call.
            problem: the error that it raises, if it does.
        """
        file, line, library = self._sites.current(2)
        if library is None and _by_compiler(sys._getframe(2)):
            library = "torch.compile"
        error = {"type": type(problem).__name__, "message": text(problem)} if problem else None
        self._events.emit("request", file=file, line=line, library=library, call=call, error=error)

    def watched(self, call: str, function: Function, errors: re.Pattern[str] | None = None) -> Function:
        """Wrap a function of torch so that calls that fail without CUDA are recorded.

        Args:
            call: the name of the call in the record.
            function: the function.
            errors: the messages of errors that mean that there is no CUDA; None if every error does.
        """

        @functools.wraps(function)
        def watching(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True  # hides the frame in pytest's tracebacks
            try:
                return function(*args, **kwargs)
            except Exception as problem:
                if errors is not None and not errors.search(str(problem)):
                    raise
                if problem is not self._recorded:
                    self._recorded = problem
                    self.note(call, problem)
                if self._answer is None:
                    raise
            return self._answer(call, *args, **kwargs)

        return watching

    def refuse(self) -> Any:
        """Record a request, and raise torch's error: the replacement of `torch.cuda._lazy_init`."""
        __tracebackhide__ = True
        try:
            return self._initialize()
        except Exception as problem:
            self._recorded = problem
            self.note(_called_by_user(sys._getframe(1), self._sites), problem)
            raise

    def install(self) -> None:
        """Watch every function of torch that needs CUDA."""
        hide()
        torch.cuda._lazy_init = self.refuse
        for module in filter(None, (sys.modules.get(f"torch.cuda{part}") for part in _PARTS)):
            for name, value in list(vars(module).items()):
                self._watch(module, name, value)
        for name in ("cuda", "to", "type", "pin_memory"):
            self._replace(torch.Tensor, name, f".{name}()")
        for name in ("load", "set_default_tensor_type"):
            self._replace(torch, name, f"torch.{name}()")
        if torch.distributed.is_available():
            self._replace(torch.distributed, "init_process_group", "init_process_group()")
        torch.Generator = self._generator()  # type: ignore[assignment, misc]

    def _replace(self, owner: Any, name: str, call: str) -> None:
        setattr(owner, name, self.watched(call, _plain_types(getattr(owner, name)), NO_CUDA))

    def _watch(self, module: ModuleType, name: str, value: Any) -> None:
        call = f"{module.__name__}.{name}"
        if isinstance(value, type(torch.FloatTensor)):
            setattr(module, name, _TensorType(value, self.watched(f"{call}()", value)))
        elif name.startswith("_") or not str(getattr(value, "__module__", "")).startswith("torch"):
            return
        elif isinstance(value, type):
            for method in ("__new__", "__init__", "__enter__"):
                own = vars(value).get(method)
                function = own.__func__ if isinstance(own, staticmethod) else own
                if callable(function):
                    setattr(value, method, self.watched(f"{call}()", function))
        elif callable(value):
            setattr(module, name, self.watched(f"{call}()", value))

    def _generator(self) -> type:
        real = torch.Generator
        make = self.watched("torch.Generator()", real, NO_CUDA)

        class GeneratorType(type(real)):  # type: ignore[misc]
            def __instancecheck__(cls, value: object) -> bool:
                return isinstance(value, real)

            def __call__(cls, *args: Any, **kwargs: Any) -> Any:
                return make(*args, **kwargs)

        return GeneratorType("Generator", (real,), {"__module__": "torch"})


class _TensorType:
    """A tensor type such as `torch.cuda.FloatTensor`, whose calls are watched."""

    def __init__(self, real: Any, call: Function) -> None:
        self.real = real
        self.call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, self.real)

    def __repr__(self) -> str:
        return repr(self.real)


def _plain_types(function: Function) -> Function:
    """Wrap a function of torch so that it accepts watched tensor types as arguments."""

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return function(*map(_real, args), **{key: _real(value) for key, value in kwargs.items()})

    return plain


def _real(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("torch.cuda."):
        value = getattr(torch.cuda, value.removeprefix("torch.cuda."), value)
    return value.real if isinstance(value, _TensorType) else value


def hide() -> None:
    """Hide all GPUs from a build with CUDA, whatever the program sets CUDA_VISIBLE_DEVICES to."""
    if torch.version.cuda is not None or getattr(torch.version, "hip", None) is not None:
        torch.cuda.is_available = lambda: False
        torch.cuda.device_count = lambda: 0


def _by_compiler(frame: FrameType | None) -> bool:
    """Return whether the compiler asks for itself, such as for the name of the GPU, and handles the answer.

    TorchDynamo is not part of it: it also makes the calls of the code that it traces.
    """
    while frame is not None:
        parts = frame.f_code.co_filename.split(os.sep)
        if frame.f_code.co_filename != __file__ and not _QUESTIONS.intersection(parts):
            return bool(_COMPILER.intersection(parts))
        frame = frame.f_back
    return False


def _called_by_user(frame: FrameType | None, sites: Sites) -> str:
    """Return the name of the Python function of torch that the user's line called."""
    last = None
    while frame is not None and not sites.is_project(frame.f_code.co_filename):
        last, frame = frame, frame.f_back
    if last is None:
        return "a CUDA device"
    if last.f_code.co_filename == __file__:
        return str(last.f_locals.get("call", ""))  # in a watched function
    if last.f_code.co_filename.startswith(OURS):
        return "device="  # a mode of the watch, below a function in C
    name = f"{getattr(last.f_code, 'co_qualname', last.f_code.co_name)}()"
    module = last.f_globals.get("__name__", "")
    return f"{module}.{name}" if module.startswith("torch.cuda") else name
