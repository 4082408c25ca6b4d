"""Observations: the tensor values that the program reads, prints and saves, by line.

Each is an event `seen` with `what` (a value of METHODS, or "save"), `file`, `line`, the `number` of the
observation at this line, and `value`: a summary of the tensor, or `{"tensors": {path: summary}}` for "save".
All of the first FULL observations of a line are recorded, and of later ones one in EACH. At the end of a
process, an event `counted` has the `count` of each line, and an event `ended` shows that nothing is missing.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import torch

from devicefix.verify.runtime.ending import after_fork, at_end
from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.imported import when_imported
from devicefix.verify.runtime.plan import Plan
from devicefix.verify.runtime.site import OURS, Sites
from devicefix.verify.runtime.summary import summarize

METHODS = {name: name for name in ("item", "tolist", "numpy")}
METHODS |= {f"__{what}__": what for what in ("array", "float", "int", "format")}
METHODS["__repr__"] = "print"
FULL = 1000  # observations of a line that are all recorded
EACH = 100  # later ones, of which one is recorded
_TENSORS = 20_000  # tensors of a line that are all recorded
_DEPTH = 40  # the depth to which saved objects are searched
_ATOMS = (str, bytes, int, float, complex, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)

_WATCH = os.path.join(OURS, "copies", "watch.py")  # which calls functions of torch for the program
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_TENSORBOARD = os.path.join(_TORCH, "utils", "tensorboard", "")  # shows values of the user


def install(plan: Plan, events: Events, sites: Sites) -> None:
    """Watch every way in which a program reads the values of a tensor, in all threads and forks.

    Args:
        plan: the plan of the run.
        events: the recorder of events.
        sites: finds the user's line.
    """
    observer = _Observer(events, sites, simulated=bool(plan.simulated))
    for name, what in METHODS.items():
        setattr(torch.Tensor, name, observer.watched(getattr(torch.Tensor, name), what))
    parameter: Any = torch.nn.Parameter
    # It calls the method of Tensor, but from within torch.
    parameter.__repr__ = observer.watched(parameter.__repr__, "print")
    torch.save = torch.serialization.save = observer.watched(torch.save, "save")
    rules = "torch._dynamo.trace_rules"  # they exclude the code in this folder from `torch.compile`
    when_imported(rules, lambda: sys.modules[rules].add(__package__))
    at_end(observer.finish)
    after_fork(observer.restart)


class _Observer:
    """The observations of one process.

    Args:
        events: the recorder of events.
        sites: finds the user's line.
        simulated: whether to record the devices that the simulated machine reports.
    """

    def __init__(self, events: Events, sites: Sites, simulated: bool) -> None:
        self._events = events
        self._sites = sites
        self._simulated = simulated
        self.restart()

    def restart(self) -> None:
        """Discard all observations, in a new process."""
        self._counts: Counter[tuple[str, int, str]] = Counter()
        self._tensors: Counter[tuple[str, int, str]] = Counter()
        self._state = _State()
        self._lock = threading.Lock()
        self._troubled = False

    def finish(self) -> None:
        """Record how many observations each line made."""
        for (file, line, what), count in self._counts.items():
            self._events.emit("counted", what=what, file=file, line=line, count=count)
        self._events.emit("ended")

    def watched(self, original: Callable[..., Any], what: str) -> Callable[..., Any]:
        """Wrap a function to record its first argument.

        Args:
            original: the function.
            what: the kind of observation.
        """

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            state = self._state
            if state.busy:
                return original(*args, **kwargs)
            state.busy = True
            try:
                result = original(*args, **kwargs)
                frame = sys._getframe(1)
                while frame.f_code.co_filename == _WATCH and frame.f_back is not None:
                    frame = frame.f_back
                if not _is_internal(frame.f_code.co_filename):
                    self._see(what, args[0] if args else next(iter(kwargs.values())))
                return result
            finally:
                state.busy = False

        return call

    def _see(self, what: str, seen: Any) -> None:
        try:
            site = self._sites.current(2)
            key = (site.file, site.line, what)
            with self._lock:
                self._counts[key] += 1
                number = self._counts[key]
            if number % EACH and (number > FULL or self._tensors[key] > _TENSORS):
                return
            value = self._summary(seen) if what != "save" else {"tensors": self._saved(seen)}
            self._tensors[key] += len(value.get("tensors", "1"))
            self._events.emit("seen", what=what, file=site.file, line=site.line, number=number, value=value)
        except Exception as error:  # an error here must not reach the program
            if not self._troubled:
                self._troubled = True
                self._events.emit("trouble", where="observe", message=f"{type(error).__name__}: {error}")

    def _summary(self, tensor: torch.Tensor) -> dict[str, Any]:
        return summarize(tensor, str(tensor.device) if self._simulated else None)

    def _saved(self, saved: Any) -> dict[str, Any]:
        return {path: self._summary(tensor) for path, tensor in tensors(saved)}


@functools.cache
def _is_internal(name: str) -> bool:
    """Return whether a file is part of torch or devicefix, whose reads do not count."""
    path = os.path.abspath(name)
    return path.startswith((OURS, _TORCH)) and not path.startswith(_TENSORBOARD)


class _State(threading.local):
    busy = False  # whether this thread is inside a watched call


def tensors(saved: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors inside a saved object, with their paths, without running code of the program.

    Args:
        saved: any object. Dicts, lists, modules, optimizers and other objects are searched.
    """
    yield from _walk("", saved, set(), 0)


def _walk(path: str, value: Any, seen: set[int], depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif depth < _DEPTH and id(value) not in seen:
        seen.add(id(value))
        for name, part in _parts(value):
            yield from _walk(f"{path}.{name}" if path else name, part, seen, depth + 1)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.nn.Module):
        fields = vars(value)
        for group in ("_parameters", "_buffers", "_modules"):
            yield from fields.get(group, {}).items()
    elif isinstance(value, dict):
        for number, key in enumerate(dict.keys(value)):  # optimizers have parameters as keys
            yield str(key) if isinstance(key, (str, int)) else f"[{number}]", dict.get(value, key)
    elif isinstance(value, (list, tuple, deque)):
        yield from ((str(i), item) for i, item in enumerate(value) if not isinstance(item, _ATOMS))
    elif not isinstance(value, _ATOMS):
        yield from _fields(value)


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that are stored in an object."""
    with suppress(AttributeError):
        yield from object.__getattribute__(value, "__dict__").items()
    for kind in type(value).__mro__:
        for name, slot in vars(kind).items():
            if isinstance(slot, MemberDescriptorType):
                with suppress(AttributeError):  # not set
                    yield name, slot.__get__(value)
