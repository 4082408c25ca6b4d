"""Streams and events of `torch.cuda`. All work is done as soon as the program requests it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from devicefix.verify.runtime.machine.state import Machine

_FUNCTIONS = ("stream", "set_stream", "current_stream", "default_stream")


class Streams:
    """The functions and classes of `torch.cuda` for streams and events.

    Args:
        machine: the machine.

    Attributes:
        machine: the machine.
        current: the current stream of each GPU, if it is not the default one.
        created: the number of streams that the program created.
        stream_type: the class `torch.cuda.Stream`.
        event_type: the class `torch.cuda.Event`.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.current: dict[int, Any] = {}
        self.created = 0
        module = machine.module.__name__
        self.stream_type: Any = type("Stream", (_Stream,), {"streams": self, "__module__": module})
        self.event_type: Any = type("Event", (_Event,), {"streams": self, "__module__": module})

    def functions(self) -> dict[str, Any]:
        """Return the replacements for attributes of `torch.cuda`, by name."""
        return {
            "Stream": self.stream_type,
            "Event": self.event_type,
            "StreamContext": self.stream,
            **{name: getattr(self, name) for name in _FUNCTIONS},
        }

    def current_stream(self, device: Any = None) -> Any:
        """Replace `torch.cuda.current_stream`."""
        place = self.machine.gpu(device)
        return self.current.get(place) or self.default_stream(place)

    def default_stream(self, device: Any = None) -> Any:
        """Replace `torch.cuda.default_stream`."""
        return self.stream_type(self.machine.gpu(device), default=True)

    def set_stream(self, stream: Any) -> None:
        """Replace `torch.cuda.set_stream`."""
        if stream is not None:
            self.machine.selected.index = stream.device_index
            self.current[stream.device_index] = stream

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        """Replace `torch.cuda.stream`, which selects a stream for a block."""
        if stream is None:
            yield
            return
        selected, old = self.machine.selected.index, self.current.get(stream.device_index)
        self.set_stream(stream)
        try:
            yield
        finally:
            self.machine.selected.index, self.current[stream.device_index] = selected, old


def _nothing(*_: Any, **__: Any) -> None:
    """Return immediately: all work is done already."""


class _Done:
    """The base of streams and events, whose work is always done."""

    streams: Streams
    wait = wait_event = wait_stream = synchronize = _nothing

    def query(self) -> bool:
        """Return that all work is done."""
        return True


class _Stream(_Done):
    """The base class of `torch.cuda.Stream`."""

    device_type = 1

    def __init__(self, device: Any = None, priority: int = 0, default: bool = False, **_: Any) -> None:
        self.device_index = self.streams.machine.gpu(device)
        self.priority = priority
        if not default:
            self.streams.created += 1
        self.stream_id = 0 if default else self.streams.created
        setattr(self, f"{self.streams.machine.type}_stream", self.stream_id)

    @property
    def device(self) -> torch.device:
        """The GPU of the stream."""
        return torch.device(self.streams.machine.type, self.device_index)

    def record_event(self, event: Any = None) -> Any:
        """Record an event, which is created if none is passed."""
        event = event or self.streams.event_type()
        event.record(self)
        return event

    def is_capturing(self) -> bool:
        """Return that no graph is being captured."""
        return False

    def __enter__(self) -> Any:
        self._context = self.streams.stream(self)
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stream) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, int]:
        return self.stream_id, self.device_index


class _Event(_Done):
    """The base class of `torch.cuda.Event` and `torch.Event`."""

    def __init__(self, *args: Any, enable_timing: bool = False, **_: Any) -> None:
        self._timing = enable_timing or args[:1] == (True,)  # the first argument of `torch.Event` is a device
        self._time: float | None = None

    def record(self, stream: Any = None) -> None:
        """Record the current time."""
        self.streams.machine.gpu()
        self._time = time.perf_counter()

    def elapsed_time(self, end: Any) -> float:
        """Return the time in milliseconds until another event."""
        if not (self._timing and end._timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or end._time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return float(end._time - self._time) * 1000.0
