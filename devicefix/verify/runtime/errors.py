"""Uncaught errors, which end a program."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any

from devicefix.verify.runtime.events import Events

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_reported: set[int] = set()  # the ids of errors


def install(events: Events) -> None:
    """Record the error that ends this process, and remove devicefix's own frames from the printed traceback.

    Args:
        events: the recorder.
    """
    hook = sys.excepthook

    def record(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
        emit(events, problem)
        hook(kind, problem.with_traceback(_own(trace)), _own(trace))

    sys.excepthook = record


def emit(events: Events, problem: BaseException) -> None:
    """Record an error, unless it is a regular exit or has been recorded already.

    Args:
        events: the recorder.
        problem: the error, with its traceback.
    """
    if isinstance(problem, SystemExit) and not isinstance(problem.code, str):
        return  # the exit status suffices
    if isinstance(problem, GeneratorExit) or id(problem) in _reported:
        return
    _reported.add(id(problem))
    frames = [*_frames(problem.__traceback__)]
    if isinstance(problem, SyntaxError) and problem.filename:
        frames.append({"file": problem.filename, "line": problem.lineno or 0, "function": ""})
    try:
        message = str(problem)
    except Exception:  # the program's own exception class may fail
        message = ""
    events.emit("error", type=type(problem).__name__, message=message[:20_000], frames=frames)


def _frames(trace: TracebackType | None) -> list[dict[str, Any]]:
    frames = []
    trace = _own(trace)
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append({"file": code.co_filename, "line": trace.tb_lineno, "function": code.co_name})
        trace = trace.tb_next
    return frames


def _own(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of devicefix and those that started the program for it."""
    kept: list[TracebackType] = []
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(_OURS):
            if all(_is_runpy(entry.tb_frame.f_code.co_filename) for entry in kept):
                kept.clear()
        else:
            kept.append(trace)
        trace = trace.tb_next
    new = None
    for entry in reversed(kept):
        new = TracebackType(new, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return new


def _is_runpy(name: str) -> bool:
    """Return whether the file is `runpy`, which Python runs `-m` modules with."""
    return name == "<frozen runpy>" or os.path.basename(name) == "runpy.py"
